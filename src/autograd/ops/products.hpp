#pragma once

#include <cstdint>
#include <utility>

#include "autograd/ops/common.hpp"

/// @file
/// Tensors as the gemm kernels take them.

namespace lockstep::autograd {

/// A [rows, columns] or [batch, rows, columns] tensor as the gemm interface wants it.
inline ArrayView batched(const Tensor& matrix) {
  ArrayView view = matrix.view();
  if (view.rank() == 2) {
    view.shape.insert(0, 1);
    view.strides.insert(0, 0);
  }
  return view;
}

inline ArrayView transposed(ArrayView view) {
  std::swap(view.shape[1], view.shape[2]);
  std::swap(view.strides[1], view.strides[2]);
  return view;
}

/// The tensor itself if its rows or its columns are dense and do not overlap, else a packed copy.
inline Tensor dense_matrix(const Tensor& x) {
  const auto dense = [&](int inner, int outer) {
    return (x.strides()[inner] == 1 || x.shape()[inner] == 1) &&
           (x.strides()[outer] >= x.shape()[inner] || x.shape()[outer] == 1);
  };
  const int r = x.dim() - 2, c = x.dim() - 1;
  return dense(c, r) || dense(r, c) ? x : x.contiguous();
}

/// out = the product that `call` describes but for out.
inline void multiply(const Tensor& out, kernels::GemmArguments call) {
  call.out = batched(out);
  backend_of(out).gemm.multiply(call, stream_of(out));
}

inline void gemm(const Tensor& out, const ArrayView& a, const ArrayView& b, double beta = 0.0) {
  multiply(out, {.a = a, .b = b, .beta = beta});
}

/// The same elements as [rows, columns of the last dimension].
inline Tensor as_matrix(const Tensor& x) {
  if (x.dim() == 2) return x;
  std::int64_t rows = 1;
  for (int i = 0; i + 1 < x.dim(); ++i) rows *= x.shape()[i];
  return x.reshape({rows, x.size(-1)});
}

}  // namespace lockstep::autograd
