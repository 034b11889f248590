#pragma once

#include <cstdint>

#include "functional/op_list.hpp"
#include "lockstep/core/array_view.hpp"
#include "lockstep/runtime/stream.hpp"

/// @file
/// Elementwise maths, copies and fills. All operands of a call are already broadcast to the
/// output's shape (stride 0 where repeated). Inputs and outputs of one call share a dtype unless
/// said otherwise.

namespace lockstep::kernels {

/// y = op(x), floating dtypes; neg, abs, square, relu, clamp and affine also i64 and i32.
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
  ArrayView out = {}, a = {}, b = {};
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

/// Elementwise kernels of one backend. Work runs in the order of the stream.
struct ElementwiseKernels {
  void (*unary)(const UnaryArguments& arguments, StreamRef stream) = nullptr;
  void (*unary_backward)(const UnaryBackwardArguments& arguments, StreamRef stream) = nullptr;
  void (*binary)(const BinaryArguments& arguments, StreamRef stream) = nullptr;
  void (*binary_backward)(const BinaryBackwardArguments& arguments, StreamRef stream) = nullptr;
  void (*compare)(const CompareArguments& arguments, StreamRef stream) = nullptr;
  void (*where)(const WhereArguments& arguments, StreamRef stream) = nullptr;
  void (*copy)(const CopyArguments& arguments, StreamRef stream) = nullptr;
  void (*fill)(const FillArguments& arguments, StreamRef stream) = nullptr;
  void (*arange)(const ArangeArguments& arguments, StreamRef stream) = nullptr;
  void (*triangle)(const TriangleArguments& arguments, StreamRef stream) = nullptr;
};

}  // namespace lockstep::kernels
