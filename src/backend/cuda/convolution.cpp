#include "backend/cuda/cudnn_ops.hpp"
#include "backend/cuda/families.hpp"
#include "backend/cuda/scratch.hpp"
#include "cuda/maths.hpp"

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

class CudaConvolution final : public Convolution {
 public:
  void forward(const ArrayView& y, const ArrayView& x, const ArrayView& weight,
               const ArrayView& bias, const ConvGeometry& geometry, StreamRef stream) override {
    if (y.numel() == 0) return;
    require(cudnn::convolution(cudnn::ConvDirection::forward, {x, weight, y}, geometry, stream),
            "conv2d", x, weight, stream);
    if (!bias) return;
    ArrayView wide = bias;
    wide.shape = y.shape;
    wide.strides = {0, bias.strides[0], 0, 0};
    cuda_kernels::binary(BinaryOp::add, y, y, wide, {}, stream);
  }

  void backward_data(const ArrayView& dx, const ArrayView& dy, const ArrayView& weight,
                     const ConvGeometry& geometry, StreamRef stream) override {
    if (dx.numel() == 0) return;
    require(
        cudnn::convolution(cudnn::ConvDirection::backward_data, {dx, weight, dy}, geometry, stream),
        "conv2d_backward_data", dx, weight, stream);
  }

  void backward_weight(const ArrayView& dweight, const ArrayView& dy, const ArrayView& x,
                       const ConvGeometry& geometry, bool accumulate, StreamRef stream) override {
    if (dweight.numel() == 0) return;
    const auto bytes = static_cast<std::size_t>(dweight.numel()) * size_of(dweight.dtype);
    const Scratch scratch(accumulate ? bytes : 0, stream);
    ArrayView target = dweight;
    if (accumulate) target.data = scratch.data();
    require(cudnn::convolution(cudnn::ConvDirection::backward_weight, {x, target, dy}, geometry,
                               stream),
            "conv2d_backward_weight", x, dweight, stream);
    if (accumulate) cuda_kernels::binary(BinaryOp::add, dweight, dweight, target, {}, stream);
  }
};

}  // namespace

Convolution& cuda_families::convolution() {
  static CudaConvolution family;
  return family;
}

}  // namespace lockstep::backend
