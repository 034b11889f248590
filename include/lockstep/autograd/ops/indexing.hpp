#pragma once

#include <cstdint>

#include "lockstep/tensor/tensor.hpp"

/// @file
/// Ops that write where an index or a mask says. Indices are i64 and on the device of the data; one
/// out of range throws InvalidArgument on the CPU, and is left out on a GPU.

namespace lockstep {

/// A copy of x to which each element of `source` is added, where `index` says along a dimension:
/// out[..index[..i..]..] += source[..i..]. What meets at one element is added in the order of the
/// source, whatever the device; bf16 and f16 are summed in f32. Numeric dtypes.
/// @param index as many dimensions as x; its extents are at most those of `source`, and those of x
/// in all dimensions but `dim`.
/// @param source of x's dtype. What lies outside the index's extents is not read.
/// @throws InvalidArgument if shapes or dtypes do not fit.
Tensor scatter_add(const Tensor& x, std::int64_t dim, const Tensor& index, const Tensor& source);
/// A copy of x to whose slices `index[i]` along a dimension alpha times the slices i of `source`
/// are added, as by `scatter_add`.
/// @param index one dimension. @param source of x's shape but for as many slices as the index has.
Tensor index_add(const Tensor& x, std::int64_t dim, const Tensor& index, const Tensor& source,
                 double alpha = 1.0);
/// x with `value` where `mask` (bool) is true; shapes broadcast.
/// @throws InvalidArgument for a mask of another dtype, or a number that x's
/// integer dtype cannot hold.
Tensor masked_fill(const Tensor& x, const Tensor& mask, Scalar value);
/// The same with the one element of a tensor without dimensions, which gets a gradient too.
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Tensor& value);
/// A copy of x with `value` where `index` says along a dimension: out[..index[..i..]..] = value.
/// Any dtype. @param index as of `scatter_add`.
Tensor scatter(const Tensor& x, std::int64_t dim, const Tensor& index, Scalar value);
/// x with source[.., i, ..] where index[.., i, ..] says along a dimension: of several at one place
/// the last. Each of those gets the place's gradient, as in PyTorch.
/// @param index, source as of `scatter_add`; any dtype.
Tensor scatter(const Tensor& x, std::int64_t dim, const Tensor& index, const Tensor& source);

/// The positions (i64) [n, dimensions] of the n elements that are not 0, in row-major order. Any
/// dtype. Waits for the device, as does what follows.
Tensor nonzero(const Tensor& x);
/// The elements of x where `mask` (bool) is true, in row-major order, in one dimension; shapes
/// broadcast. @throws InvalidArgument for a mask of another dtype.
Tensor masked_select(const Tensor& x, const Tensor& mask);
/// How often each of 0, 1, ... is in x (i64, one dimension): [max + 1], or `min_length` if that is
/// more. @throws InvalidArgument for another dtype or shape, and on the CPU for negative numbers.
Tensor bincount(const Tensor& x, std::int64_t min_length = 0);

/// index (i64) with a last dimension of `num_classes` more, that holds 1 at the index and else 0.
/// @param num_classes -1: one more than the largest index, which waits for the device.
/// @throws InvalidArgument for negative and too large indices on the CPU (on a GPU they give zeros
/// only), and for -1 with no elements.
Tensor one_hot(const Tensor& index, std::int64_t num_classes = -1);

}  // namespace lockstep
