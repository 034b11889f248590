#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/tensor/tensor.hpp"

/// @file
/// Ops that rearrange elements. All are differentiable; dimensions may be negative.

namespace lockstep {

/// Joins tensors along an existing dimension. @throws InvalidArgument if other extents differ.
Tensor cat(std::span<const Tensor> tensors, std::int64_t dim = 0);
/// Joins tensors along an existing dimension.
inline Tensor cat(const std::vector<Tensor>& tensors, std::int64_t dim = 0) {
  return cat(std::span<const Tensor>(tensors), dim);
}
/// Joins tensors of one shape along a new dimension.
Tensor stack(std::span<const Tensor> tensors, std::int64_t dim = 0);
/// Joins tensors of one shape along a new dimension.
inline Tensor stack(const std::vector<Tensor>& tensors, std::int64_t dim = 0) {
  return stack(std::span<const Tensor>(tensors), dim);
}
/// Views of consecutive parts of the given extents, which must add up.
std::vector<Tensor> split(const Tensor& x, std::span<const std::int64_t> sizes,
                          std::int64_t dim = 0);
/// Views of consecutive parts of the given extents, which must add up.
inline std::vector<Tensor> split(const Tensor& x, std::initializer_list<std::int64_t> sizes,
                                 std::int64_t dim = 0) {
  return split(x, std::span(sizes.begin(), sizes.size()), dim);
}
/// Views of parts of one extent, the last one smaller if need be; of nothing one part, empty.
std::vector<Tensor> split(const Tensor& x, std::int64_t size, std::int64_t dim = 0);
/// Views of at most `chunks` parts of equal extent, the last one smaller if need be; of nothing
/// `chunks` empty ones.
std::vector<Tensor> chunk(const Tensor& x, std::int64_t chunks, std::int64_t dim = 0);

/// The coordinates of the points of a grid over axes of one dimension each, which all get as many
/// dimensions as there are axes: [len(first), len(second), ...]. Views, to be read.
/// @param indexing "ij", or "xy", by which the first two dimensions change places.
/// @throws InvalidArgument for no axes, others than of one dimension (or none: of one point), and
/// another indexing.
std::vector<Tensor> meshgrid(std::span<const Tensor> axes, std::string_view indexing = "ij");
/// The coordinates of the points of a grid.
inline std::vector<Tensor> meshgrid(const std::vector<Tensor>& axes,
                                    std::string_view indexing = "ij") {
  return meshgrid(std::span<const Tensor>(axes), indexing);
}
/// Views of the parts at each index of a dimension, which disappears.
std::vector<Tensor> unbind(const Tensor& x, std::int64_t dim = 0);
/// As many copies behind one another as `times` says of each dimension; more numbers than
/// dimensions repeat along new leading ones.
Tensor repeat(const Tensor& x, const Dims& times);
/// Each slice along a dimension as many times, one behind the other; without a dimension each
/// element of x as one of one dimension. @throws InvalidArgument for a negative number.
Tensor repeat_interleave(const Tensor& x, std::int64_t times, std::optional<std::int64_t> dim = {});
/// The same with a number for each slice (i64, one dimension), which waits for the device.
/// @throws InvalidArgument also for more or less numbers than slices, unless there is one.
Tensor repeat_interleave(const Tensor& x, const Tensor& times,
                         std::optional<std::int64_t> dim = {});
/// `expand` to the shape of another tensor.
Tensor expand_as(const Tensor& x, const Tensor& other);

/// Reverses the order along dimensions.
Tensor flip(const Tensor& x, const Dims& dims);
Tensor flip(const Tensor& x, DimIndex auto dim) { return flip(x, only(dim)); }
/// Shifts along a dimension; what leaves at the end enters at the start.
Tensor roll(const Tensor& x, std::int64_t shift, std::int64_t dim);
/// Surrounds with a constant: `padding` holds (before, after) pairs from the last dimension on, as
/// in PyTorch.
Tensor pad(const Tensor& x, std::span<const std::int64_t> padding, Scalar value = 0);
/// The same of numbers in braces.
inline Tensor pad(const Tensor& x, std::initializer_list<std::int64_t> padding, Scalar value = 0) {
  return pad(x, std::span(padding.begin(), padding.size()), value);
}
/// What lies around a padded tensor.
enum class PaddingMode : unsigned char {
  constant,   ///< 0
  reflect,    ///< the elements from the edge on backwards, without that at the edge
  replicate,  ///< the element at the edge
  circular,   ///< the elements from the other end
};
/// Surrounds with elements of x, in row-major order. @param padding as above, not negative.
/// @throws InvalidArgument for a padding of an extent or more by reflection, of more than one in a
/// circle, and of no element.
Tensor pad(const Tensor& x, std::span<const std::int64_t> padding, PaddingMode mode);
/// The same of numbers in braces.
inline Tensor pad(const Tensor& x, std::initializer_list<std::int64_t> padding, PaddingMode mode) {
  return pad(x, std::span(padding.begin(), padding.size()), mode);
}
/// The view `Tensor::diagonal`.
inline Tensor diagonal(const Tensor& x, std::int64_t offset = 0, std::int64_t dim1 = 0,
                       std::int64_t dim2 = 1) {
  return x.diagonal(offset, dim1, dim2);
}
/// A matrix with x on a diagonal (0: the main one, above 0: those right of it) and zeros elsewhere;
/// of a matrix a copy of that diagonal. @throws InvalidArgument for other numbers of dimensions.
Tensor diag(const Tensor& x, std::int64_t diagonal = 0);
/// Keeps elements on and below a diagonal of the last two dimensions, zeroes the rest.
Tensor tril(const Tensor& x, std::int64_t diagonal = 0);
/// Keeps elements on and above a diagonal of the last two dimensions, zeroes the rest.
Tensor triu(const Tensor& x, std::int64_t diagonal = 0);

/// The slices that `index` (i64, one dimension) names along a dimension.
/// @throws InvalidArgument on the CPU for an index out of range; on a GPU it gives NaN (0 in
/// integers).
Tensor index_select(const Tensor& x, std::int64_t dim, const Tensor& index);
/// out[..i..] = x[..index[..i..]..] along a dimension; `index` (i64) has out's shape.
/// @throws InvalidArgument on the CPU for an index out of range; on a GPU it gives NaN (0 in
/// integers).
Tensor gather(const Tensor& x, std::int64_t dim, const Tensor& index);

}  // namespace lockstep
