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
/// What `unique` finds.
struct Unique {
  Tensor values;   ///< the different elements, in rising order, [n]
  Tensor inverse;  ///< i64, of the input's shape: which of them each element is
  Tensor counts;   ///< i64 [n], how often each is there
};
/// The different elements of a tensor, each NaN one of its own. Any dtype. Waits for the device.
/// Not differentiable.
Unique unique(const Tensor& x);
/// The k largest (or smallest) elements along a dimension, in falling (rising) order, and their
/// positions (i64).
std::pair<Tensor, Tensor> topk(const Tensor& x, std::int64_t k, std::int64_t dim = -1,
                               bool largest = true);
/// The middle element along a dimension, of an even number the lower one, and its position (i64),
/// which gets the whole gradient. A line with NaN gives the first of them. Numeric.
/// @throws InvalidArgument for an extent of 0.
std::pair<Tensor, Tensor> median(const Tensor& x, std::int64_t dim, bool keepdim = false);
/// The middle element of all; those that are equal to it share its gradient evenly.
/// @throws InvalidArgument for none.
Tensor median(const Tensor& x);
/// What the share q of the elements along a dimension lies below, interpolated linearly between
/// neighbours; a line with NaN gives NaN. Floating, 16 bits rounded once.
/// @param q floating, within [0, 1], of one dimension, which comes first in the result, or of none.
/// @throws InvalidArgument for an extent of 0, and for another q (on a GPU only of another shape).
Tensor quantile(const Tensor& x, const Tensor& q, std::int64_t dim, bool keepdim = false);
/// The same of all elements.
Tensor quantile(const Tensor& x, const Tensor& q);
/// The same of one share, by number.
Tensor quantile(const Tensor& x, double q, std::int64_t dim, bool keepdim = false);
Tensor quantile(const Tensor& x, double q);
/// Where values would have to be inserted into sorted lines to keep them sorted (i64): before
/// elements that equal them, or behind with `right`. Not differentiable.
/// @param sorted rising along its last dimension; one dimension, or the leading extents of
/// `values`.
/// @param values of the same dtype, any shape.
Tensor searchsorted(const Tensor& sorted, const Tensor& values, bool right = false);

}  // namespace lockstep
