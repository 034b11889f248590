#include "backend/onednn/plane_products.hpp"

#include "arguments/elementwise.hpp"
#include "arguments/gemm.hpp"
#include "arguments/reduction.hpp"
#include "backend/onednn/families.hpp"
#include "backend/onednn/library.hpp"
#include "cpu/scratch.hpp"

namespace lockstep::backend {
namespace {

std::int64_t pixels_of(const ArrayView& images) { return images.shape[2] * images.shape[3]; }

/// Images as [image, channel, pixel].
ArrayView planes(const ArrayView& images) {
  const std::int64_t count = images.shape[0], channels = images.shape[1];
  const std::int64_t pixels = pixels_of(images);
  return {images.data, images.dtype, {count, channels, pixels}, {channels * pixels, pixels, 1}};
}

/// A weight as [image, out, in], the same one for all images.
ArrayView for_each_image(const ArrayView& weight, std::int64_t images) {
  const std::int64_t outs = weight.shape[0], ins = weight.shape[1];
  return {weight.data, weight.dtype, {images, outs, ins}, {0, ins, 1}};
}

/// Pixels of a plane from which on products are faster than the convolution, whatever the channels;
/// of smaller ones they are for few outputs.
constexpr std::int64_t large_plane = 1024, small_plane = 64, few_outputs = 4;

}  // namespace

bool is_plane_product(const ConvolutionCall& call) {
  const std::int64_t pixels = pixels_of(call.x);
  // The gradient of a weight with few inputs and many outputs: sums that are not long enough.
  const bool is_flat = call.writes_weight && call.weight.shape[0] >= 32 &&
                       call.weight.shape[1] < 32 && pixels < 4 * large_plane;
  return !is_flat && call.x.dtype == DType::f32 && call.weight.dtype == DType::f32 &&
         call.is_of_all_points() && call.x.is_contiguous() && call.y.is_contiguous() &&
         call.weight.is_contiguous() && call.x.numel() > 0 && call.y.numel() > 0 &&
         (pixels >= large_plane || (pixels >= small_plane && call.weight.shape[0] <= few_outputs));
}

void plane_forward(const kernels::ConvolutionArguments& a, StreamRef stream) {
  onednn_gemm().multiply(
      {.out = planes(a.y), .a = for_each_image(a.weight, a.x.shape[0]), .b = planes(a.x)}, stream);
  if (!a.bias) return;
  ArrayView bias = a.bias;  // [channels], for each image and pixel
  bias.shape = a.y.shape;
  bias.strides = {0, a.bias.strides[0], 0, 0};
  cpu_kernels::elementwise::binary({.op = BinaryOp::add, .out = a.y, .a = a.y, .b = bias}, stream);
}

void plane_backward_data(const kernels::ConvolutionDataGradientArguments& a, StreamRef stream) {
  onednn_gemm().multiply({.out = planes(a.dx),
                          .a = dnn::transposed(for_each_image(a.weight, a.dx.shape[0])),
                          .b = planes(a.dy),
                          .beta = a.accumulate ? 1.0 : 0.0},
                         stream);
}

// A weight's gradient for each image, which are added up behind it.
void plane_backward_weight(const kernels::ConvolutionWeightGradientArguments& a, StreamRef stream) {
  static thread_local cpu_kernels::Scratch memory;
  const std::int64_t images = a.x.shape[0], outs = a.dweight.shape[0], ins = a.dweight.shape[1];
  const ArrayView sum{a.dweight.data, DType::f32, {1, outs, ins}, {outs * ins, ins, 1}};
  const ArrayView each{memory.get<float>(static_cast<std::size_t>(images * outs * ins)),
                       DType::f32,
                       {images, outs, ins},
                       {outs * ins, ins, 1}};
  onednn_gemm().multiply({.out = each, .a = planes(a.dy), .b = dnn::transposed(planes(a.x))},
                         stream);
  cpu_kernels::reduction::reduce(
      {.op = ReduceOp::sum, .out = sum, .in = each, .accumulate = a.accumulate}, stream);
}

}  // namespace lockstep::backend
