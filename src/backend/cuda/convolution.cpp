#include "backend/cuda/cudnn_ops.hpp"
#include "backend/cuda/families.hpp"
#include "backend/cuda/scratch.hpp"
#include "cuda/maths.hpp"
#include "cuda/move.hpp"

namespace lockstep::backend {
namespace {

void require(bool done, std::string_view op, const ArrayView& x, const ArrayView& weight,
             StreamRef stream) {
  if (done) return;
  const std::string_view reason = cudnn::missing();
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

/// Weights in the memory format of the images, which is how cuDNN takes them: themselves, or a
/// copy.
class FormattedWeight {
 public:
  FormattedWeight(const ArrayView& given, const ArrayView& x, const ArrayView& y, StreamRef stream)
      : given_(given),
        strides_(x.is_contiguous() && y.is_contiguous() ? contiguous_strides(given.shape)
                                                        : channels_last_strides(given.shape)),
        copied_(!lies_as(given, strides_)),
        scratch_(copied_ ? static_cast<std::size_t>(given.numel()) * size_of(given.dtype) : 0,
                 stream),
        stream_(stream) {}

  /// For a product that writes them.
  ArrayView view() const {
    ArrayView view = given_;
    view.strides = strides_;
    if (copied_) view.data = scratch_.data();
    return view;
  }
  /// For a product that reads them.
  ArrayView loaded() const {
    if (copied_) cuda_kernels::copy({.out = view(), .in = given_}, stream_);
    return view();
  }
  /// Brings what a product wrote to where it belongs.
  void store() const {
    if (copied_) cuda_kernels::copy({.out = given_, .in = view()}, stream_);
  }

 private:
  ArrayView given_;
  Strides strides_;
  bool copied_;
  Scratch scratch_;
  StreamRef stream_;
};

class CudaConvolution final : public Convolution {
 public:
  void forward(const ArrayView& y, const ArrayView& x, const ArrayView& weight,
               const ArrayView& bias, const ConvGeometry& geometry, StreamRef stream) override {
    if (y.numel() == 0) return;
    const FormattedWeight taps(weight, x, y, stream);
    require(
        cudnn::convolution(cudnn::ConvDirection::forward, {x, taps.loaded(), y}, geometry, stream),
        "conv2d", x, weight, stream);
    if (!bias) return;
    ArrayView wide = bias;
    wide.shape = y.shape;
    wide.strides = {0, bias.strides[0], 0, 0};
    cuda_kernels::binary({.op = BinaryOp::add, .out = y, .a = y, .b = wide}, stream);
  }

  void backward_data(const ArrayView& dx, const ArrayView& dy, const ArrayView& weight,
                     const ConvGeometry& geometry, StreamRef stream) override {
    if (dx.numel() == 0) return;
    const FormattedWeight taps(weight, dx, dy, stream);
    require(cudnn::convolution(cudnn::ConvDirection::backward_data, {dx, taps.loaded(), dy},
                               geometry, stream),
            "conv2d_backward_data", dx, weight, stream);
  }

  void backward_weight(const ArrayView& dweight, const ArrayView& dy, const ArrayView& x,
                       const ConvGeometry& geometry, bool accumulate, StreamRef stream) override {
    if (dweight.numel() == 0) return;
    const auto bytes = static_cast<std::size_t>(dweight.numel()) * size_of(dweight.dtype);
    const Scratch scratch(accumulate ? bytes : 0, stream);
    ArrayView target = dweight;
    if (accumulate) target.data = scratch.data();
    const FormattedWeight taps(target, x, dy, stream);
    require(cudnn::convolution(cudnn::ConvDirection::backward_weight, {x, taps.view(), dy},
                               geometry, stream),
            "conv2d_backward_weight", x, dweight, stream);
    taps.store();
    if (accumulate)
      cuda_kernels::binary({.op = BinaryOp::add, .out = dweight, .a = dweight, .b = target},
                           stream);
  }
};

}  // namespace

Convolution& cuda_families::convolution() {
  static CudaConvolution family;
  return family;
}

}  // namespace lockstep::backend
