#pragma once

#include "arguments/elementwise.hpp"

/// @file
/// Kernels that move, select and compare elements.

namespace lockstep::cuda_kernels {

void copy(const kernels::CopyArguments& arguments, StreamRef stream);
void fill(const kernels::FillArguments& arguments, StreamRef stream);
void where(const kernels::WhereArguments& arguments, StreamRef stream);
void compare(const kernels::CompareArguments& arguments, StreamRef stream);

}  // namespace lockstep::cuda_kernels
