#pragma once

#include <cstdint>

#include "arguments/family.hpp"
#include "functional/op_list.hpp"
#include "lockstep/core/array_view.hpp"

/// @file
/// Elementwise maths, copies and fills. All operands of a call are already broadcast to the
/// output's shape (stride 0 where repeated). Inputs and outputs of one call share a dtype unless
/// said otherwise.

namespace lockstep::kernels {

/// y = op(x), floating dtypes; what is whole of whole numbers (neg, abs, relu, clamp, affine, ...)
/// also i64, i32 and u8.
struct UnaryArguments {
  UnaryOp op = {};
  ArrayView y = {}, x = {};
  OpConstants constants = {};
};

/// dx = dy * op'(x).
struct UnaryBackwardArguments {
  UnaryOp op = {};
  ArrayView dx = {}, dy = {};
  ArrayView saved = {};  ///< x or y, whichever the op saves; absent where it saves nothing
  OpConstants constants = {};
};

/// out = op(a, b), floating and integer dtypes (pow, binary_cross_entropy: floating only).
struct BinaryArguments {
  BinaryOp op = {};
  ArrayView out = {}, a = {}, b = {};  ///< add: f32 also of f32 and bf16 or f16
  OpConstants constants = {};
};

/// Gradients of a binary op in the broadcast shape.
struct BinaryBackwardArguments {
  BinaryOp op = {};
  ArrayView da = {}, db = {};  ///< each may be absent
  ArrayView dout = {};
  ArrayView a = {}, b = {};  ///< absent where the op saves nothing
  OpConstants constants = {};
};

/// out (bool) = a op b, any dtype.
struct CompareArguments {
  CompareOp op = {};
  ArrayView out = {}, a = {}, b = {};
};

/// out = condition (bool) ? a : b, any dtype.
struct WhereArguments {
  ArrayView out = {}, condition = {}, a = {}, b = {};
};

/// out = in, converting between any two dtypes; strides may be negative; the views must not
/// overlap.
struct CopyArguments {
  ArrayView out = {}, in = {};
};

/// out = value, any dtype.
struct FillArguments {
  ArrayView out = {};
  double value = 0.0;
};

/// out[i] = start + i * step over a contiguous array, any dtype but bool.
struct ArangeArguments {
  ArrayView out = {};
  double start = 0.0, step = 1.0;
};

/// Keeps elements with column - row <= diagonal of the last two dimensions and zeroes the rest.
struct TriangleArguments {
  ArrayView out = {}, in = {};
  bool upper = false;  ///< keeps those with column - row >= diagonal
  std::int64_t diagonal = 0;
};

}  // namespace lockstep::kernels

/// Elementwise kernels of one backend. Work runs in the order of the stream.
#define LOCKSTEP_ELEMENTWISE_KERNELS(KERNEL)       \
  KERNEL(unary, UnaryArguments)                    \
  KERNEL(unary_backward, UnaryBackwardArguments)   \
  KERNEL(binary, BinaryArguments)                  \
  KERNEL(binary_backward, BinaryBackwardArguments) \
  KERNEL(compare, CompareArguments)                \
  KERNEL(where, WhereArguments)                    \
  KERNEL(copy, CopyArguments)                      \
  KERNEL(fill, FillArguments)                      \
  KERNEL(arange, ArangeArguments)                  \
  KERNEL(triangle, TriangleArguments)
LOCKSTEP_KERNEL_FAMILY(elementwise, ElementwiseKernels, LOCKSTEP_ELEMENTWISE_KERNELS)
