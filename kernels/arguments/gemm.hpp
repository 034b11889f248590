#pragma once

#include "arguments/family.hpp"
#include "lockstep/core/array_view.hpp"

/// @file
/// Matrix products.

namespace lockstep::kernels {

/// What happens to a product before it is stored.
enum class Epilogue : unsigned char {
  none,
  bias,       ///< out += bias, per column
  gelu_bias,  ///< aux = product + bias (the pre-activation); out = gelu_tanh(aux)
  dgelu,      ///< out = product * gelu_tanh'(aux)
  /// bias = sums of a's rows: where out is a weight's gradient dy^T x, the bias's; batch 1
  bias_gradient,
};

/// One product: out = epilogue(a @ b) + beta * addend.
/// All three are [batch, rows, columns] views; a transposed operand has its strides swapped (one of
/// the last two strides is 1 wherever the extent exceeds 1), a broadcast one has batch stride 0.
/// f32, bf16 and f16 accumulate in f32, f64 in f64. `a` and `b` share a dtype, which `out` has too,
/// or f32 where they are bf16 or f16: then nothing is rounded on the way. Bias and aux have out's.
struct GemmArguments {
  ArrayView out = {}, a = {}, b = {};
  double beta = 0.0;  ///< 0 overwrites (NaN in `out` does not survive), 1 accumulates
  /// What beta multiplies, with out's shape and dtype; absent: what out holds.
  ArrayView addend = {};
  Epilogue epilogue = Epilogue::none;
  ArrayView bias = {};  ///< [columns], for bias and gelu_bias; [rows], written by bias_gradient
  bool accumulate_bias = false;  ///< bias_gradient adds to what `bias` holds
  /// [batch, rows, columns] contiguous: written by gelu_bias unless it is absent, read by dgelu.
  ArrayView aux = {};
};

}  // namespace lockstep::kernels

/// Products of one backend. Work runs in the order of the stream.
#define LOCKSTEP_GEMM_KERNELS(KERNEL) KERNEL(multiply, GemmArguments)
LOCKSTEP_KERNEL_FAMILY(gemm, GemmKernels, LOCKSTEP_GEMM_KERNELS)
