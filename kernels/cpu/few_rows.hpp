#pragma once

#include "arguments/gemm.hpp"

/// @file
/// Products of a few rows, such as those of one token.

namespace lockstep::cpu_kernels {

/// Computes a product in which one operand has so few rows (or columns, of b) that the time goes
/// into reading the other one: that is read once, as it lies in memory, and multiplied in f32. Each
/// element's sum runs over the depth in an order of its own, whatever the threads.
/// @param call one that fits together, of f32, bf16 or f16. @returns false, with nothing done,
/// where another way is faster, or for another dtype, layout or epilogue than none and a bias.
bool multiply_few_rows(const kernels::GemmArguments& call);

}  // namespace lockstep::cpu_kernels
