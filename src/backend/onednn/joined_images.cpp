#include "backend/onednn/joined_images.hpp"

#include <algorithm>
#include <cstring>

#include "backend/onednn/direct_convolution.hpp"
#include "backend/onednn/library.hpp"
#include "cpu/scratch.hpp"
#include "cpu/tiles.hpp"
#include "lockstep/core/parallel.hpp"

namespace lockstep::backend {
namespace {

// Wider results than this gain no more.
constexpr std::int64_t widest = 96;

/// The view of the joined images, its data not set.
ArrayView joined_shape(const ArrayView& images, std::int64_t count, std::int64_t step) {
  ArrayView joined = images;
  joined.shape[0] /= count;
  joined.shape[3] += (count - 1) * step;
  joined.strides = channels_last_strides(joined.shape);
  return joined;
}

/// Calls `row(image row, joined row, is last of its joined row)` with the first element of each, in
/// parallel.
template <class Row>
void for_each_row(const ArrayView& images, const ArrayView& joined, Row&& row) {
  const std::int64_t height = images.shape[2], count = images.shape[0] / joined.shape[0];
  const std::int64_t step =
      count > 1 ? (joined.shape[3] - images.shape[3]) / (count - 1) : joined.shape[3];
  const std::int64_t grain =
      std::max<std::int64_t>(1, cpu_kernels::parallel_grain /
                                    std::max<std::int64_t>(1, images.shape[1] * images.shape[3]));
  parallel_for(images.shape[0] * height, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t n = i / height, h = i % height;
      row(images.as<char>() + (n * images.strides[0] + h * images.strides[2]) *
                                  static_cast<std::int64_t>(size_of(images.dtype)),
          joined.as<char>() + (n / count * joined.strides[0] + h * joined.strides[2] +
                               n % count * step * joined.strides[3]) *
                                  static_cast<std::int64_t>(size_of(joined.dtype)),
          n % count + 1 == count);
    }
  });
}

/// Bytes of `columns` positions.
std::size_t bytes_of(const ArrayView& images, std::int64_t columns) {
  return static_cast<std::size_t>(columns * images.shape[1]) * size_of(images.dtype);
}

ArrayView join(const ArrayView& images, std::int64_t count, std::int64_t step, bool load,
               cpu_kernels::Scratch& memory) {
  ArrayView joined = joined_shape(images, count, step);
  joined.data = memory.get<char>(static_cast<std::size_t>(joined.numel()) * size_of(images.dtype));
  if (!load) return joined;
  const std::size_t row = bytes_of(images, images.shape[3]);
  const std::size_t gap = bytes_of(images, step - images.shape[3]);
  for_each_row(images, joined, [&](const char* from, char* to, bool last) {
    std::memcpy(to, from, row);
    if (!last) std::memset(to + row, 0, gap);
  });
  return joined;
}

thread_local cpu_kernels::Scratch x_memory, y_memory;

}  // namespace

JoinedImages::JoinedImages(const ArrayView& x, const ArrayView& weight, const ArrayView& y,
                           const kernels::ConvGeometry& geometry) {
  const bool plain = geometry.groups == 1 && geometry.dilation == kernels::Pair{1, 1};
  if (x.dtype != DType::bf16 || !plain || y.shape[3] >= wide) return;
  if (!dnn::is_channels_last(x) || !dnn::is_channels_last(y)) return;
  const std::int64_t stride = geometry.stride[1], padding = geometry.padding[1];
  // A window reaches neither back into the image before its own nor on into the one behind it, and
  // results do not overlap.
  const std::int64_t reach = (y.shape[3] - 1) * stride - padding + weight.shape[3];
  const std::int64_t least = std::max({x.shape[3] + padding, reach, y.shape[3] * stride});
  y_step_ = (least + stride - 1) / stride;
  x_step_ = y_step_ * stride;
  for (std::int64_t count = x.shape[0]; count > 1 && count_ == 1; --count)
    if (x.shape[0] % count == 0 && count * y_step_ <= widest) count_ = count;
}

ArrayView JoinedImages::x(const ArrayView& images, bool load) const {
  return join(images, count_, x_step_, load, x_memory);
}

ArrayView JoinedImages::y(const ArrayView& images, bool load) const {
  return join(images, count_, y_step_, load, y_memory);
}

void JoinedImages::split(const ArrayView& images, const ArrayView& joined) const {
  const std::size_t row = bytes_of(images, images.shape[3]);
  for_each_row(images, joined,
               [&](char* to, const char* from, bool) { std::memcpy(to, from, row); });
}

void JoinedImages::forward(const kernels::ConvolutionArguments& a, StreamRef stream) const {
  kernels::ConvolutionArguments inner = a;
  inner.x = x(a.x, true);
  inner.y = y(a.y, false);
  direct_forward(inner, stream);
  split(a.y, inner.y);
}

void JoinedImages::backward_data(const kernels::ConvolutionDataGradientArguments& a,
                                 StreamRef stream) const {
  kernels::ConvolutionDataGradientArguments inner = a;
  inner.dy = y(a.dy, true);
  inner.dx = x(a.dx, false);
  direct_backward_data(inner, stream);
  split(a.dx, inner.dx);
}

void JoinedImages::backward_weight(const kernels::ConvolutionWeightGradientArguments& a,
                                   StreamRef stream) const {
  kernels::ConvolutionWeightGradientArguments inner = a;
  inner.x = x(a.x, true);
  inner.dy = y(a.dy, true);
  direct_backward_weight(inner, stream);
}

}  // namespace lockstep::backend
