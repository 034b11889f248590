#pragma once

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

}  // namespace lockstep
