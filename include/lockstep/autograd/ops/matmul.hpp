#pragma once

#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// Matrix products.

namespace lockstep {

/// Matrix product with NumPy's rules: 1-D operands act as a row (left) or a column (right) that
/// disappears from the result; leading dimensions are batches and broadcast.
/// @param a [..., m, k], [k] or scalar-free shapes only.
/// @param b [..., k, n] or [k].
/// @throws InvalidArgument if the inner extents, dtypes or devices differ.
Tensor matmul(const Tensor& a, const Tensor& b);

/// `matmul` of two matrices. @throws InvalidArgument for other numbers of dimensions.
Tensor mm(const Tensor& a, const Tensor& b);
/// `matmul` of two batches of as many matrices. @throws InvalidArgument unless both have three
/// dimensions and the first is the same.
Tensor bmm(const Tensor& a, const Tensor& b);
/// out[i][j] = a[i] * b[j], of two tensors of one dimension.
Tensor outer(const Tensor& a, const Tensor& b);

/// x @ weight^T + bias.
/// @param x [..., in]. @param weight [out, in]. @param bias [out], may be undefined.
/// @return [..., out]. @throws InvalidArgument if shapes, dtypes or devices do not fit.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

/// addend + x @ weight^T + bias, rounded once: the end of a residual branch without a pass that
/// adds. Mixed precision converts what is multiplied, not the addend, in whose dtype the sum is.
/// @param addend [..., out], of x's dtype, or f32 where the product is of bf16 or f16.
/// @param x, weight, bias as of `linear`. @throws InvalidArgument as `linear`, and for an addend of
/// another shape or dtype.
Tensor add_linear(const Tensor& addend, const Tensor& x, const Tensor& weight,
                  const Tensor& bias = {});

/// The layers of a multilayer perceptron with one hidden layer; either bias may be undefined.
struct MlpWeights {
  Tensor hidden_weight;  ///< [hidden, in]
  Tensor hidden_bias;    ///< [hidden]
  Tensor out_weight;     ///< [out, hidden]
  Tensor out_bias;       ///< [out]
};

/// Options of mlp.
struct MlpOptions {
  GeluApproximation approximation = GeluApproximation::tanh;
  Tensor addend = {};  ///< as of `add_linear`; undefined: nothing is added
};

/// addend + linear(gelu(linear(x, hidden)), out), the feed-forward part of a transformer. With
/// GELU by its tanh approximation and a hidden bias it is part of the products on both sides of it,
/// forward and backward; its input is kept then, and is not where no gradient is recorded.
/// @param x [..., in]. @return [..., out]. @throws InvalidArgument as `add_linear`.
Tensor mlp(const Tensor& x, const MlpWeights& weights, const MlpOptions& options = {});

}  // namespace lockstep
