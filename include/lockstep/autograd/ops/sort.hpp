#pragma once

#include <cstdint>
#include <utility>

#include "lockstep/tensor/tensor.hpp"

/// @file
/// Order along a dimension. NaN counts as larger than all numbers; equal elements keep their order.

namespace lockstep {

/// The elements of each line in rising (or falling) order, and the positions (i64) they come from.
/// Any dtype.
std::pair<Tensor, Tensor> sort(const Tensor& x, std::int64_t dim = -1, bool descending = false);
/// The positions (i64) by which `sort` would rearrange each line. Not differentiable.
Tensor argsort(const Tensor& x, std::int64_t dim = -1, bool descending = false);
/// The k largest (or smallest) elements along a dimension, in falling (rising) order, and their
/// positions (i64).
std::pair<Tensor, Tensor> topk(const Tensor& x, std::int64_t k, std::int64_t dim = -1,
                               bool largest = true);
/// Where values would have to be inserted into sorted lines to keep them sorted (i64): before
/// elements that equal them, or behind with `right`. Not differentiable.
/// @param sorted rising along its last dimension; one dimension, or the leading extents of
/// `values`.
/// @param values of the same dtype, any shape.
Tensor searchsorted(const Tensor& sorted, const Tensor& values, bool right = false);

}  // namespace lockstep
