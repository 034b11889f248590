#pragma once

#include <cstdint>

#include "functional/op_list.hpp"
#include "lockstep/core/array_view.hpp"
#include "lockstep/core/philox.hpp"
#include "lockstep/runtime/stream.hpp"

namespace lockstep::backend {

/// Elementwise maths. All operands of a call are already broadcast to the output's shape (stride 0
/// where repeated; strides may be negative in `copy`). Inputs and outputs of one call share a dtype
/// unless said otherwise. Work runs in the order of the stream.
class Elementwise {
 public:
  virtual ~Elementwise() = default;

  /// y = op(x), floating dtypes; neg, abs, square, relu, clamp and affine also i64 and i32.
  virtual void unary(UnaryOp op, const ArrayView& y, const ArrayView& x, OpConstants constants,
                     StreamRef stream) = 0;
  /// dx = dy * op'(x). `x` or `y` is absent where the op does not save it.
  virtual void unary_backward(UnaryOp op, const ArrayView& dx, const ArrayView& dy,
                              const ArrayView& x, const ArrayView& y, OpConstants constants,
                              StreamRef stream) = 0;
  /// out = op(a, b), floating and integer dtypes (pow: floating only).
  virtual void binary(BinaryOp op, const ArrayView& out, const ArrayView& a, const ArrayView& b,
                      OpConstants constants, StreamRef stream) = 0;
  /// Gradients in the broadcast shape; `da` or `db` is absent where not wanted. `a` and `b` are
  /// absent where the op saves nothing.
  virtual void binary_backward(BinaryOp op, const ArrayView& da, const ArrayView& db,
                               const ArrayView& dout, const ArrayView& a, const ArrayView& b,
                               OpConstants constants, StreamRef stream) = 0;
  /// out (bool) = a op b, any dtype.
  virtual void compare(CompareOp op, const ArrayView& out, const ArrayView& a, const ArrayView& b,
                       StreamRef stream) = 0;
  /// out = condition (bool) ? a : b, any dtype.
  virtual void where(const ArrayView& out, const ArrayView& condition, const ArrayView& a,
                     const ArrayView& b, StreamRef stream) = 0;
  /// out = in, converting between any two dtypes; the views must not overlap.
  virtual void copy(const ArrayView& out, const ArrayView& in, StreamRef stream) = 0;
  /// out = value, any dtype.
  virtual void fill(const ArrayView& out, double value, StreamRef stream) = 0;
  /// out[i] = start + i * step over a contiguous array, any dtype but bool.
  virtual void arange(const ArrayView& out, double start, double step, StreamRef stream) = 0;
  /// Keeps elements with column - row <= diagonal of the last two dimensions (tril), or >= with
  /// `upper` (triu), and zeroes the rest.
  virtual void triangle(const ArrayView& out, const ArrayView& in, bool upper,
                        std::int64_t diagonal, StreamRef stream) = 0;

  /// out = uniform over [low, high), contiguous floating. Element i uses random word i.
  virtual void uniform(const ArrayView& out, double low, double high, PhiloxState random,
                       StreamRef stream) = 0;
  /// out = normal by Box-Muller, contiguous floating. Elements 2i and 2i + 1 use words 2i, 2i + 1.
  virtual void normal(const ArrayView& out, double mean, double deviation, PhiloxState random,
                      StreamRef stream) = 0;
  /// out = x / (1 - p) where uniform(word i) >= p, else 0; i counts in row-major order. Applying
  /// it to dy with the same state is the backward.
  virtual void dropout(const ArrayView& out, const ArrayView& x, double p, PhiloxState random,
                       StreamRef stream) = 0;
};

}  // namespace lockstep::backend
