#include <limits>

#include "autograd/ops/common.hpp"
#include "autograd/ops/composed.hpp"
#include "autograd/ops/recorded.hpp"
#include "lockstep/autograd/ops/shape.hpp"
#include "lockstep/autograd/ops/spatial.hpp"

namespace lockstep {

LOCKSTEP_OP(diag, any, follow, same)
LOCKSTEP_OP(pixel_shuffle, any, follow, same)
LOCKSTEP_OP(pixel_unshuffle, any, follow, same)
LOCKSTEP_OP(repeat_interleave, any, follow, same)

namespace {

using namespace autograd;

/// Number of elements of the extents from `begin` up to `end`.
std::int64_t extent_of(const Shape& shape, int begin, int end) {
  std::int64_t product = 1;
  for (int d = begin; d < end; ++d) product *= shape[d];
  return product;
}

/// How often each of `extent` slices is wanted, as the numbers of the slices.
std::vector<std::int64_t> repeated_slices(const Tensor& times, std::int64_t extent) {
  const std::string_view op = ops::repeat_interleave.name;
  LOCKSTEP_CHECK(times.dtype() == DType::i64 && times.dim() <= 1 &&
                     (times.numel() == 1 || times.numel() == extent),
                 InvalidArgument, op, ": numbers of dtype ", times.dtype(), " and shape ",
                 times.shape(), "; it needs one i64, or one for each of ", extent, " slices");
  const std::vector<std::int64_t> numbers = times.to_vector<std::int64_t>();
  std::vector<std::int64_t> slices;
  for (std::int64_t i = 0; i < extent; ++i) {
    const std::int64_t number = numbers[numbers.size() == 1 ? 0 : static_cast<std::size_t>(i)];
    LOCKSTEP_CHECK(number >= 0, InvalidArgument, op, ": slice ", i, " repeated ", number,
                   " times; it must not be negative");
    slices.insert(slices.end(), static_cast<std::size_t>(number), i);
  }
  return slices;
}

/// @throws InvalidArgument for what has no channels, rows and columns, or another factor than one
/// that divides extents.
void check_pixels(std::string_view op, const Tensor& x, std::int64_t factor) {
  LOCKSTEP_CHECK(x.dim() >= 3, InvalidArgument, op, ": needs images [..., C, H, W], got shape ",
                 x.shape());
  LOCKSTEP_CHECK(factor > 0 && factor <= std::numeric_limits<std::int32_t>::max(), InvalidArgument,
                 op, ": the factor must be above 0, and an extent of an image, got ", factor);
}

/// x with other last three extents.
Shape with_image(const Shape& shape, std::int64_t channels, std::int64_t rows,
                 std::int64_t columns) {
  Shape image = shape;
  const int d = shape.size() - 3;
  image[d] = channels, image[d + 1] = rows, image[d + 2] = columns;
  return image;
}

}  // namespace

Tensor repeat_interleave(const Tensor& x, std::int64_t times, std::optional<std::int64_t> dim) {
  if (!dim || x.dim() == 0) return repeat_interleave(x.reshape({-1}), times, 0);
  const ComposedOp call(ops::repeat_interleave, x);
  LOCKSTEP_CHECK(times >= 0, InvalidArgument, call.name(), ": ", times,
                 " times; it must not be negative");
  const int d = wrap_dim(*dim, x.dim());
  Shape shape = x.shape();
  const std::int64_t before = extent_of(shape, 0, d + 1);
  const std::int64_t behind = extent_of(shape, d + 1, shape.size());
  shape[d] *= times;
  return x.reshape({before, 1, behind}).expand({before, times, behind}).clone().reshape(shape);
}

Tensor repeat_interleave(const Tensor& x, const Tensor& times, std::optional<std::int64_t> dim) {
  if (!dim || x.dim() == 0) return repeat_interleave(x.reshape({-1}), times, 0);
  const ComposedOp call(ops::repeat_interleave, x);
  const std::vector<std::int64_t> slices = repeated_slices(times, x.size(*dim));
  const Tensor index = from_span<std::int64_t>(slices, {std::ssize(slices)});
  return index_select(x, *dim, index.to(x.device()));
}

Tensor diag(const Tensor& x_in, std::int64_t diagonal) {
  const OpCall call(ops::diag, x_in);
  const Tensor& x = call[0];
  LOCKSTEP_CHECK(x.dim() == 1 || x.dim() == 2, InvalidArgument, call.name(), ": a tensor of shape ",
                 x.shape(), " is neither a diagonal nor a matrix");
  const bool is_matrix = x.dim() == 2;
  const std::int64_t side = is_matrix ? 0 : x.numel() + std::abs(diagonal);
  Tensor y = no_grad([&] {
    if (is_matrix) return x.diagonal(diagonal).clone();
    Tensor matrix = zeros({side, side}, x.options());
    matrix.diagonal(diagonal).copy_(x);
    return matrix;
  });
  if (!call.recording()) return y;
  const auto backward = [diagonal, is_matrix](const Tensor& dy, InputGradients& inputs) {
    if (!is_matrix) return inputs.set(0, dy.diagonal(diagonal));
    const auto framed = [&](const Tensor& gradient) {
      const Tensor dx = zeros(inputs.operand_shape(0), gradient.options());
      dx.diagonal(diagonal).copy_(gradient);
      return dx;
    };
    inputs.set(0, adjoint(inputs, ops::diag.name, dy, framed,
                          [diagonal](const Tensor& ddx) { return ddx.diagonal(diagonal); }));
  };
  return call.record(y, Differentiable{backward});
}

Tensor pixel_shuffle(const Tensor& x, std::int64_t factor) {
  const ComposedOp call(ops::pixel_shuffle, x);
  check_pixels(call.name(), x, factor);
  const std::int64_t channels = x.size(-3), rows = x.size(-2), columns = x.size(-1);
  LOCKSTEP_CHECK(channels % (factor * factor) == 0, InvalidArgument, call.name(), ": ", channels,
                 " channels of shape ", x.shape(), " are not divisible by ", factor, " squared");
  const std::int64_t left = channels / (factor * factor);
  const std::int64_t images = extent_of(x.shape(), 0, x.dim() - 3);
  return x.reshape({images, left, factor, factor, rows, columns})
      .permute({0, 1, 4, 2, 5, 3})
      .clone()
      .reshape(with_image(x.shape(), left, rows * factor, columns * factor));
}

Tensor pixel_unshuffle(const Tensor& x, std::int64_t factor) {
  const ComposedOp call(ops::pixel_unshuffle, x);
  check_pixels(call.name(), x, factor);
  const std::int64_t channels = x.size(-3), rows = x.size(-2), columns = x.size(-1);
  LOCKSTEP_CHECK(rows % factor == 0 && columns % factor == 0, InvalidArgument, call.name(), ": ",
                 rows, " rows and ", columns, " columns of shape ", x.shape(),
                 " are not divisible by ", factor);
  const std::int64_t images = extent_of(x.shape(), 0, x.dim() - 3);
  return x.reshape({images, channels, rows / factor, factor, columns / factor, factor})
      .permute({0, 1, 3, 5, 2, 4})
      .clone()
      .reshape(with_image(x.shape(), channels * factor * factor, rows / factor, columns / factor));
}

}  // namespace lockstep
