#include <array>
#include <utility>

#include "arguments/elementwise.hpp"
#include "arguments/gemm.hpp"
#include "backend/onednn/direct_convolution.hpp"
#include "backend/onednn/f32_products.hpp"
#include "backend/onednn/families.hpp"
#include "backend/onednn/joined_images.hpp"
#include "backend/onednn/library.hpp"
#include "backend/onednn/plane_products.hpp"
#include "cpu/scratch.hpp"

namespace lockstep::backend {
namespace {

using kernels::Epilogue;

/// A channels-last image as a matrix [positions, channels], or a 1 x 1 weight as [out, in].
ArrayView matrix(const ArrayView& image) {
  const std::int64_t columns = image.shape[1], rows = image.numel() / columns;
  return {image.data, image.dtype, {1, rows, columns}, {rows * columns, columns, 1}};
}

/// True where a normalised call is a matrix product of its operands as they lie in memory. oneDNN's
/// products keep to the processor's rate where its gradients of such convolutions do not, in bf16
/// by several times, and take weights in the order in which they are.
bool is_product(const ConvolutionCall& call) {
  return call.is_of_all_points() && dnn::is_channels_last(call.x) && dnn::is_channels_last(call.y);
}

/// The same for the forward call, which in bf16 is faster as a convolution of wide images.
bool is_forward_product(const ConvolutionCall& call) {
  return is_product(call) && (call.x.dtype == DType::f32 || call.y.shape[3] < JoinedImages::wide);
}

/// True for a normalised call with a 1 x 1 weight at strides, of which oneDNN 2.6.3 has gradients
/// that are wrong: of bf16 data for an odd number of results (AVX512-BF16), and of weights for
/// fewer than eight inputs (AVX2). The cpu backend has these.
bool takes_points_apart(const ConvolutionCall& call) {
  return call.is_of_points() && call.geometry.stride != kernels::Pair{1, 1} &&
         dnn::is_channels_last(call.x);
}

/// How the images of a normalised call are joined, if they are.
JoinedImages joined(const ConvolutionCall& call) {
  if (!dnn::has_amx()) return {};
  return {call.x, call.weight, call.y, call.geometry};
}

/// An operand of a call in 16 bits as f32, in the same memory order: converted copies in the
/// thread's working memory. f32 operands are themselves.
class InF32 {
 public:
  /// @param slot 0 to 3: operands of one call. @param read false where it is only written.
  InF32(const ArrayView& given, std::size_t slot, bool read = true) : given_(given), view_(given) {
    if (!given || given.dtype == DType::f32) return;
    static thread_local std::array<cpu_kernels::Scratch, 4> memory;
    view_.data = memory[slot].get<float>(static_cast<std::size_t>(given.numel()));
    view_.dtype = DType::f32;
    view_.strides = dnn::is_channels_last(given) ? channels_last_strides(given.shape)
                                                 : contiguous_strides(given.shape);
    if (read) cpu_kernels::elementwise::copy({.out = view_, .in = given}, StreamRef{});
  }
  const ArrayView& view() const { return view_; }
  /// Rounds what was written into the operand.
  void bring_out() const {
    if (view_.dtype != given_.dtype)
      cpu_kernels::elementwise::copy({.out = given_, .in = view_}, StreamRef{});
  }

 private:
  ArrayView given_, view_;
};

// oneDNN's direct convolutions for f32 and bf16; f16 goes through f32, and so does bf16 where the
// processor has no products of it. A bf16 call that they are slow for is brought into another form
// first: a product, or one over wider images.

void forward(const kernels::ConvolutionArguments& a, StreamRef stream) {
  if (is_multiplied_in_f32(a.x.dtype)) {
    const InF32 x(a.x, 0), weight(a.weight, 1), y(a.y, 2, false), bias(a.bias, 3);
    forward({.y = y.view(),
             .x = x.view(),
             .weight = weight.view(),
             .bias = bias.view(),
             .geometry = a.geometry},
            stream);
    return y.bring_out();
  }
  ConvolutionCall call{a.x, a.weight, a.y, a.bias, a.geometry};
  if (!call.normalise()) return cpu().convolution.forward(a, stream);
  if (is_forward_product(call))
    return onednn_gemm().multiply({.out = matrix(a.y),
                                   .a = matrix(a.x),
                                   .b = dnn::transposed(matrix(a.weight)),
                                   .epilogue = a.bias ? Epilogue::bias : Epilogue::none,
                                   .bias = a.bias},
                                  stream);
  if (is_plane_product(call)) return plane_forward(a, stream);
  if (const auto wide = joined(call))
    return wide.forward({call.y, call.x, call.weight, a.bias, a.geometry}, stream);
  direct_forward(a, stream);
}

/// The data gradient by an algorithm that overwrites it, in working memory, and then added.
template <class Compute>
void add_data_gradient(const kernels::ConvolutionDataGradientArguments& a, const Compute& compute) {
  static thread_local cpu_kernels::Scratch memory;
  kernels::ConvolutionDataGradientArguments part = a;
  part.dx.data =
      memory.get<std::byte>(static_cast<std::size_t>(a.dx.numel()) * size_of(a.dx.dtype));
  part.accumulate = false;
  compute(part, StreamRef{});
  cpu_kernels::elementwise::binary({.op = BinaryOp::add, .out = a.dx, .a = a.dx, .b = part.dx},
                                   StreamRef{});
}

void backward_data(const kernels::ConvolutionDataGradientArguments& a, StreamRef stream) {
  if (is_multiplied_in_f32(a.dx.dtype)) {
    const InF32 dx(a.dx, 0, a.accumulate), weight(a.weight, 1), dy(a.dy, 2);
    backward_data({.dx = dx.view(),
                   .dy = dy.view(),
                   .weight = weight.view(),
                   .geometry = a.geometry,
                   .accumulate = a.accumulate},
                  stream);
    return dx.bring_out();
  }
  ConvolutionCall call{a.dx, a.weight, a.dy, {}, a.geometry};
  const auto is_wrong = [&] {
    return takes_points_apart(call) && a.dx.dtype == DType::bf16 && a.weight.shape[0] % 2 != 0;
  };
  if (!call.normalise() || is_wrong()) return cpu().convolution.backward_data(a, stream);
  if (is_product(call))
    return onednn_gemm().multiply({.out = matrix(a.dx),
                                   .a = matrix(a.dy),
                                   .b = matrix(a.weight),
                                   .beta = a.accumulate ? 1.0 : 0.0},
                                  stream);
  if (is_plane_product(call)) return plane_backward_data(a, stream);
  if (a.accumulate) return add_data_gradient(a, backward_data);
  if (const auto wide = joined(call))
    return wide.backward_data({call.x, call.y, call.weight, a.geometry}, stream);
  direct_backward_data(a, stream);
}

void backward_weight(const kernels::ConvolutionWeightGradientArguments& a, StreamRef stream) {
  if (is_multiplied_in_f32(a.x.dtype)) {
    const InF32 x(a.x, 0), dweight(a.dweight, 1, a.accumulate), dy(a.dy, 2);
    kernels::ConvolutionWeightGradientArguments inner = a;
    inner.x = x.view();
    inner.dy = dy.view();
    inner.dweight = dweight.view();
    backward_weight(inner, stream);
    return dweight.bring_out();
  }
  ConvolutionCall call{a.x, a.dweight, a.dy, {}, a.geometry, true};
  const auto is_wrong = [&] { return takes_points_apart(call) && a.dweight.shape[1] < 8; };
  if (!call.normalise() || is_wrong()) return cpu().convolution.backward_weight(a, stream);
  if (is_product(call))
    return onednn_gemm().multiply({.out = matrix(a.dweight),
                                   .a = dnn::transposed(matrix(a.dy)),
                                   .b = matrix(a.x),
                                   .beta = a.accumulate ? 1.0 : 0.0},
                                  stream);
  if (is_plane_product(call)) return plane_backward_weight(a, stream);
  if (const auto wide = joined(call))
    return wide.backward_weight({call.weight, call.y, call.x, a.geometry, a.accumulate}, stream);
  direct_backward_weight(a, stream);
}

}  // namespace

kernels::ConvolutionKernels onednn_convolution() {
  return {.forward = forward, .backward_data = backward_data, .backward_weight = backward_weight};
}

}  // namespace lockstep::backend
