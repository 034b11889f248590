#include "arguments/convolution.hpp"

#include "arguments/elementwise.hpp"
#include "arguments/gemm.hpp"
#include "backend/cuda/cudnn_ops.hpp"
#include "cuda/scratch.hpp"

namespace lockstep::cuda_kernels {
namespace {

void require(bool done, std::string_view op, const ArrayView& x, const ArrayView& weight,
             StreamRef stream) {
  if (done) return;
  const std::string_view reason = backend::cudnn::missing();
  LOCKSTEP_THROW(Unsupported, op, ": no kernel for ", x.dtype, " images of shape ", x.shape,
                 " and weights of shape ", weight.shape, " on device ", stream.device,
                 reason.empty() ? "" : "; ", reason);
}

/// Strides of extents of 1 carry no meaning.
bool lies_as(const ArrayView& view, const Strides& strides) {
  for (int d = 0; d < view.rank(); ++d)
    if (view.shape[d] > 1 && view.strides[d] != strides[d]) return false;
  return true;
}

/// An array in the memory format that cuDNN takes it in: itself, or a copy.
class Formatted {
 public:
  Formatted(const ArrayView& given, const Strides& strides, StreamRef stream)
      : given_(given),
        strides_(strides),
        copied_(!lies_as(given, strides)),
        scratch_(copied_ ? static_cast<std::size_t>(given.numel()) * size_of(given.dtype) : 0,
                 stream),
        stream_(stream) {}

  ArrayView view() const {
    ArrayView view = given_;
    view.strides = strides_;
    if (copied_) view.data = scratch_.data();
    return view;
  }
  /// For a product that reads it; before it.
  void load() const {
    if (copied_) elementwise::copy({.out = view(), .in = given_}, stream_);
  }
  /// For a product that writes it; after it.
  void store() const {
    if (copied_) elementwise::copy({.out = given_, .in = view()}, stream_);
  }

 private:
  ArrayView given_;
  Strides strides_;
  bool copied_;
  Scratch scratch_;
  StreamRef stream_;
};

/// cuDNN takes weights in the memory format of the images, and f64 in NCHW alone.
Strides weight_strides(const ArrayView& image, const ArrayView& weight, const ArrayView& result) {
  const bool is_nchw =
      image.dtype == DType::f64 || (image.is_contiguous() && result.is_contiguous());
  return is_nchw ? contiguous_strides(weight.shape) : channels_last_strides(weight.shape);
}

bool convolve_formatted(backend::cudnn::ConvDirection direction,
                        const backend::cudnn::ConvArrays& arrays,
                        const kernels::ConvGeometry& geometry, StreamRef stream) {
  const bool is_f64 = arrays.image.dtype == DType::f64;
  const auto of_image = [&](const ArrayView& view) {
    return is_f64 ? contiguous_strides(view.shape) : view.strides;
  };
  const Formatted image(arrays.image, of_image(arrays.image), stream);
  const Formatted result(arrays.result, of_image(arrays.result), stream);
  const Formatted weight(arrays.weight, weight_strides(arrays.image, arrays.weight, arrays.result),
                         stream);
  const Formatted* const written_by[] = {&result, &image, &weight};
  const Formatted* const written = written_by[static_cast<std::size_t>(direction)];
  for (const Formatted* operand : {&image, &weight, &result})
    if (operand != written) operand->load();
  if (!backend::cudnn::convolution(direction, {image.view(), weight.view(), result.view()},
                                   geometry, stream))
    return false;
  written->store();
  return true;
}

/// One of equal parts of a view along a dimension.
ArrayView part_of(const ArrayView& view, int dim, std::int64_t index, std::int64_t parts) {
  ArrayView part = view;
  part.shape[dim] /= parts;
  const std::int64_t begin = index * part.shape[dim] * view.strides[dim];
  part.data =
      static_cast<std::byte*>(view.data) + begin * static_cast<std::int64_t>(size_of(view.dtype));
  return part;
}

/// In f64 cuDNN has no groups: each is a convolution of its own.
bool convolve(backend::cudnn::ConvDirection direction, const backend::cudnn::ConvArrays& arrays,
              const kernels::ConvGeometry& geometry, StreamRef stream) {
  const std::int64_t groups = geometry.groups;
  if (arrays.image.dtype != DType::f64 || groups == 1)
    return convolve_formatted(direction, arrays, geometry, stream);
  kernels::ConvGeometry one = geometry;
  one.groups = 1;
  for (std::int64_t group = 0; group < groups; ++group) {
    const backend::cudnn::ConvArrays parts{part_of(arrays.image, 1, group, groups),
                                           part_of(arrays.weight, 0, group, groups),
                                           part_of(arrays.result, 1, group, groups)};
    if (!convolve_formatted(direction, parts, one, stream)) return false;
  }
  return true;
}

std::size_t bytes_of(const ArrayView& view) {
  return static_cast<std::size_t>(view.numel()) * size_of(view.dtype);
}

/// out = part, or out + part.
void put(const ArrayView& out, const ArrayView& part, bool accumulate, StreamRef stream) {
  if (!accumulate) return elementwise::copy({.out = out, .in = part}, stream);
  ArrayView converted = part;
  const Scratch scratch(part.dtype == out.dtype ? 0 : bytes_of(out), stream);
  if (part.dtype != out.dtype) {
    converted.dtype = out.dtype;
    converted.data = scratch.data();
    elementwise::copy({.out = converted, .in = part}, stream);
  }
  elementwise::binary({.op = BinaryOp::add, .out = out, .a = out, .b = converted}, stream);
}

bool is_channels_last(const ArrayView& view) {
  return lies_as(view, channels_last_strides(view.shape));
}

/// True where the gradient is a matrix product of its operands as they lie in memory.
bool is_product(const kernels::ConvolutionDataGradientArguments& a) {
  const kernels::ConvGeometry& geometry = a.geometry;
  return geometry.groups == 1 && a.weight.shape[2] == 1 && a.weight.shape[3] == 1 &&
         geometry.stride == kernels::Pair{1, 1} && geometry.padding == kernels::Pair{0, 0} &&
         is_channels_last(a.dx) && is_channels_last(a.dy) && is_channels_last(a.weight);
}

/// A channels-last image as a matrix [positions, channels], or a 1 x 1 weight as [out, in].
ArrayView matrix(const ArrayView& image) {
  const std::int64_t columns = image.shape[1], rows = image.numel() / columns;
  return {image.data, image.dtype, {1, rows, columns}, {rows * columns, columns, 1}};
}

}  // namespace

void convolution::forward(const kernels::ConvolutionArguments& a, StreamRef stream) {
  if (a.y.numel() == 0) return;
  require(
      convolve(backend::cudnn::ConvDirection::forward, {a.x, a.weight, a.y}, a.geometry, stream),
      "conv2d", a.x, a.weight, stream);
  if (!a.bias) return;
  ArrayView wide = a.bias;
  wide.shape = a.y.shape;
  wide.strides = {0, a.bias.strides[0], 0, 0};
  elementwise::binary({.op = BinaryOp::add, .out = a.y, .a = a.y, .b = wide}, stream);
}

void convolution::backward_data(const kernels::ConvolutionDataGradientArguments& a,
                                StreamRef stream) {
  if (a.dx.numel() == 0) return;
  if (a.accumulate && is_product(a))
    return gemm::multiply(
        {.out = matrix(a.dx), .a = matrix(a.dy), .b = matrix(a.weight), .beta = 1.0}, stream);
  ArrayView target = a.dx;
  const Scratch scratch(a.accumulate ? bytes_of(target) : 0, stream);
  if (a.accumulate) target.data = scratch.data();
  require(convolve(backend::cudnn::ConvDirection::backward_data, {target, a.weight, a.dy},
                   a.geometry, stream),
          "conv2d_backward_data", a.dx, a.weight, stream);
  if (a.accumulate) put(a.dx, target, true, stream);
}

/// cuDNN gives weight gradients in the dtype and memory format of the images.
void convolution::backward_weight(const kernels::ConvolutionWeightGradientArguments& a,
                                  StreamRef stream) {
  if (a.dweight.numel() == 0) return;
  const bool direct = !a.accumulate && a.dweight.dtype == a.x.dtype;
  ArrayView target = a.dweight;
  target.dtype = a.x.dtype;
  const Scratch scratch(direct ? 0 : bytes_of(target), stream);
  if (!direct) {
    target.data = scratch.data();
    target.strides = weight_strides(a.x, target, a.dy);
  }
  require(convolve(backend::cudnn::ConvDirection::backward_weight, {a.x, target, a.dy}, a.geometry,
                   stream),
          "conv2d_backward_weight", a.x, a.dweight, stream);
  if (!direct) put(a.dweight, target, a.accumulate, stream);
}

}  // namespace lockstep::cuda_kernels
