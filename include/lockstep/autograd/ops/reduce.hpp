#pragma once

#include <cstdint>
#include <utility>

#include "lockstep/tensor/tensor.hpp"

/// @file
/// Reductions over whole dimensions: one number, or several in braces. None given means all; one
/// named twice throws InvalidArgument. With `keepdim` reduced dimensions stay with extent 1. bf16
/// and f16 accumulate in f32. A tensor without dimensions may be named its dimension 0 or -1, here
/// as by softmax and the ops that order, as if it had one of extent 1.

namespace lockstep {

/// Sum. Integers and bool (which counts what is true) give i64.
Tensor sum(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor sum(const Tensor& x, DimIndex auto dim, bool keepdim = false) {
  return sum(x, only(dim), keepdim);
}
/// Arithmetic mean. Floating.
Tensor mean(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor mean(const Tensor& x, DimIndex auto dim, bool keepdim = false) {
  return mean(x, only(dim), keepdim);
}
/// Product. Integers and bool give i64. The gradient is right where elements are 0, too.
Tensor prod(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor prod(const Tensor& x, DimIndex auto dim, bool keepdim = false) {
  return prod(x, only(dim), keepdim);
}
/// Largest element; ties share the gradient equally. @throws InvalidArgument where a dimension it
/// goes over is empty.
Tensor amax(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor amax(const Tensor& x, DimIndex auto dim, bool keepdim = false) {
  return amax(x, only(dim), keepdim);
}
/// Smallest element; ties share the gradient equally.
Tensor amin(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor amin(const Tensor& x, DimIndex auto dim, bool keepdim = false) {
  return amin(x, only(dim), keepdim);
}
/// log(sum(exp(x))), without overflow; of no elements -inf.
Tensor logsumexp(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor logsumexp(const Tensor& x, DimIndex auto dim, bool keepdim = false) {
  return logsumexp(x, only(dim), keepdim);
}
/// Variance; `correction` is subtracted from the count (1: unbiased), down to 0 at most.
Tensor var(const Tensor& x, const Dims& dims = {}, std::int64_t correction = 1,
           bool keepdim = false);
Tensor var(const Tensor& x, DimIndex auto dim, std::int64_t correction = 1, bool keepdim = false) {
  return var(x, only(dim), correction, keepdim);
}
/// Standard deviation: the square root of `var`; gradient 0 where that is 0.
Tensor std(const Tensor& x, const Dims& dims = {}, std::int64_t correction = 1,
           bool keepdim = false);
Tensor std(const Tensor& x, DimIndex auto dim, std::int64_t correction = 1, bool keepdim = false) {
  return std(x, only(dim), correction, keepdim);
}
/// Euclidean norm; gradient 0 at 0.
Tensor norm(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor norm(const Tensor& x, DimIndex auto dim, bool keepdim = false) {
  return norm(x, only(dim), keepdim);
}
/// (sum |x|^p)^(1/p), of p = 0 the number of elements that are not 0, of infinity the largest |x|,
/// of -infinity the least; gradient 0 at 0. Without dimensions over all.
/// @throws InvalidArgument for a NaN, and without elements for an infinite or negative p.
Tensor vector_norm(const Tensor& x, double p = 2.0, const Dims& dims = {}, bool keepdim = false);
Tensor vector_norm(const Tensor& x, double p, DimIndex auto dim, bool keepdim = false) {
  return vector_norm(x, p, only(dim), keepdim);
}
/// The p-norms of the differences between all points of two sets: the distances [..., P, R]. All
/// differences are kept for backward, [..., P, R, M], but for p = 2, eight or more coordinates not
/// in f64 and more than 25 points in a set: those distances come from products in f64, as |a|^2 +
/// |b|^2 - 2ab. What is below some 2e-8 sqrt(M) |a| is 0 there, and infinite coordinates give
/// NaN.
/// @param a [..., P, M]. @param b [..., R, M]; leading extents broadcast.
/// @throws InvalidArgument for shapes that do not fit, and for a negative p.
Tensor cdist(const Tensor& a, const Tensor& b, double p = 2.0);

/// x / max(norm, eps) with the p-norm along a dimension, (sum |x|^p)^(1/p), of which that of an
/// infinite p is the largest |x|: vectors of length 1.
/// @throws InvalidArgument unless p is above 0, and for a negative eps.
Tensor normalize(const Tensor& x, double p = 2.0, std::int64_t dim = 1, double eps = 1e-12);
/// The cosine of the angle between vectors along a dimension of the shape that both broadcast to:
/// the sum of the products of what `normalize` makes of them. That dimension is gone in the result.
Tensor cosine_similarity(const Tensor& a, const Tensor& b, std::int64_t dim = 1, double eps = 1e-8);

/// Position (i64) of the first largest element along a dimension. Not differentiable.
Tensor argmax(const Tensor& x, std::int64_t dim, bool keepdim = false);
/// Position (i64) of the first smallest element along a dimension. Not differentiable.
Tensor argmin(const Tensor& x, std::int64_t dim, bool keepdim = false);
/// Position (i64) of the first largest element of all, in row-major order.
Tensor argmax(const Tensor& x);
/// Position (i64) of the first smallest element of all, in row-major order.
Tensor argmin(const Tensor& x);
/// The largest element of all, as `amax`.
Tensor max(const Tensor& x);
/// The smallest element of all, as `amin`.
Tensor min(const Tensor& x);
/// The larger of two, element by element, as `maximum`.
Tensor max(const Tensor& a, const Tensor& b);
/// The smaller of two, element by element, as `minimum`.
Tensor min(const Tensor& a, const Tensor& b);
/// The largest elements along a dimension and the positions (i64) of the first of each, which gets
/// the whole gradient. NaN counts as the largest.
std::pair<Tensor, Tensor> max(const Tensor& x, std::int64_t dim, bool keepdim = false);
/// The smallest elements along a dimension and their positions, likewise; NaN comes first here too.
std::pair<Tensor, Tensor> min(const Tensor& x, std::int64_t dim, bool keepdim = false);
/// True (bool) where some element is not 0; false for no elements. Any dtype.
Tensor any(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor any(const Tensor& x, DimIndex auto dim, bool keepdim = false) {
  return any(x, only(dim), keepdim);
}
/// True (bool) where no element is 0, as for no elements. Any dtype.
Tensor all(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor all(const Tensor& x, DimIndex auto dim, bool keepdim = false) {
  return all(x, only(dim), keepdim);
}
/// Running sum along a dimension. Integers and bool give i64.
Tensor cumsum(const Tensor& x, std::int64_t dim);
/// Running product along a dimension, in f64, rounded once. Integers and bool give i64. The
/// gradient, and on a GPU long lines, multiply neighbours first: where their products overflow f64,
/// so does the result, and 0 before them gives NaN. The gradient is right where elements are 0.
Tensor cumprod(const Tensor& x, std::int64_t dim);

}  // namespace lockstep
