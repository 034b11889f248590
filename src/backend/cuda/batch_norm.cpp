#include "cuda/batch_norm.hpp"

#include <limits>

#include "backend/cuda/families.hpp"
#include "backend/cuda/scratch.hpp"
#include "backend/spatial.hpp"
#include "cuda/move.hpp"

namespace lockstep::backend {
namespace {

namespace kernels = cuda_kernels;

/// An array [C] of the accumulation type that lives for one call.
class ChannelArray {
 public:
  ChannelArray(const ArrayView& x, StreamRef stream, std::int64_t rows = 1)
      : dtype_(x.dtype == DType::f64 ? DType::f64 : DType::f32),
        channels_(x.shape[1]),
        scratch_(static_cast<std::size_t>(rows * channels_) * size_of(dtype_), stream) {}

  ArrayView view(std::int64_t row = 0) const {
    auto* const data = static_cast<std::byte*>(scratch_.data()) +
                       row * channels_ * static_cast<std::int64_t>(size_of(dtype_));
    return {data, dtype_, {channels_}, {1}};
  }

 private:
  DType dtype_;
  std::int64_t channels_;
  Scratch scratch_;
};

/// A parameter in the accumulation type: the array itself, a converted copy, or a constant where
/// it is absent.
class Parameter {
 public:
  Parameter(const ArrayView& given, double absent, const ArrayView& x, StreamRef stream)
      : copy_(x, stream), view_(copy_.view()) {
    if (!given)
      kernels::fill({.out = view_, .value = absent}, stream);
    else if (given.dtype == view_.dtype)
      view_ = given;
    else
      kernels::copy({.out = view_, .in = given}, stream);
  }
  const ArrayView& view() const { return view_; }

 private:
  ChannelArray copy_;
  ArrayView view_;
};

/// An array [C] seen in the shape of x.
ArrayView over(const ArrayView& per_channel, const ArrayView& x) {
  ArrayView wide = per_channel;
  wide.shape = x.shape;
  wide.strides = Strides::filled(x.rank(), 0);
  wide.strides[1] = per_channel.strides[0];
  return wide;
}

double count_of(const ArrayView& x) {
  return static_cast<double>(x.numel()) / static_cast<double>(x.shape[1]);
}

class CudaBatchNorm final : public BatchNorm {
 public:
  void train(const ArrayView& y, const ArrayView& save_mean, const ArrayView& save_rstd,
             const ArrayView& running_mean, const ArrayView& running_var, const ArrayView& x,
             const ArrayView& weight, const ArrayView& bias, double momentum, double eps,
             StreamRef stream) override {
    const Scratch scratch(kernels::channel_scratch_bytes(x), stream);
    const ChannelArray mean(x, stream);
    const ChannelArray variance(x, stream);
    const ChannelArray rstd(x, stream);
    kernels::channel_mean(mean.view(), x, scratch.data(), stream);
    kernels::channel_variance(variance.view(), mean.view(), x, scratch.data(), stream);
    kernels::inverse_deviation(rstd.view(), variance.view(), eps, stream);
    const double count = count_of(x);
    if (running_mean) kernels::move_running(running_mean, mean.view(), momentum, 1.0, stream);
    if (running_var)
      kernels::move_running(running_var, variance.view(), momentum, count / (count - 1.0), stream);
    kernels::copy({.out = save_mean, .in = mean.view()}, stream);
    kernels::copy({.out = save_rstd, .in = rstd.view()}, stream);
    apply(y, x, mean.view(), rstd.view(), weight, bias, stream);
  }

  void eval(const ArrayView& y, const ArrayView& running_mean, const ArrayView& running_var,
            const ArrayView& x, const ArrayView& weight, const ArrayView& bias, double eps,
            StreamRef stream) override {
    const Parameter mean(running_mean, 0.0, x, stream);
    const Parameter variance(running_var, 1.0, x, stream);
    const ChannelArray rstd(x, stream);
    kernels::inverse_deviation(rstd.view(), variance.view(), eps, stream);
    apply(y, x, mean.view(), rstd.view(), weight, bias, stream);
  }

  void train_backward(const ArrayView& dx, const ArrayView& dweight, const ArrayView& dbias,
                      const ArrayView& dy, const ArrayView& x, const ArrayView& weight,
                      const ArrayView& save_mean, const ArrayView& save_rstd,
                      StreamRef stream) override {
    const Parameter mean(save_mean, 0.0, x, stream);
    const Parameter rstd(save_rstd, 1.0, x, stream);
    backward({.dx = dx,
              .dy = dy,
              .x = x,
              .mean = mean.view(),
              .rstd = rstd.view(),
              .weight = weight,
              .sum = {},
              .product_sum = {},
              .count = count_of(x)},
             dweight, dbias, stream);
  }

  void eval_backward(const ArrayView& dx, const ArrayView& dweight, const ArrayView& dbias,
                     const ArrayView& dy, const ArrayView& x, const ArrayView& weight,
                     const ArrayView& running_mean, const ArrayView& running_var, double eps,
                     StreamRef stream) override {
    const Parameter mean(running_mean, 0.0, x, stream);
    const Parameter variance(running_var, 1.0, x, stream);
    const ChannelArray rstd(x, stream);
    kernels::inverse_deviation(rstd.view(), variance.view(), eps, stream);
    // Fixed statistics pass nothing back: as if a channel had infinitely many elements.
    backward({.dx = dx,
              .dy = dy,
              .x = x,
              .mean = mean.view(),
              .rstd = rstd.view(),
              .weight = weight,
              .sum = {},
              .product_sum = {},
              .count = std::numeric_limits<double>::infinity()},
             dweight, dbias, stream);
  }

 private:
  static void apply(const ArrayView& y, const ArrayView& x, const ArrayView& mean,
                    const ArrayView& rstd, const ArrayView& weight, const ArrayView& bias,
                    StreamRef stream) {
    const Parameter scale(weight, 1.0, x, stream);
    const Parameter offset(bias, 0.0, x, stream);
    kernels::normalise(y, x, over(mean, x), over(rstd, x), over(scale.view(), x),
                       over(offset.view(), x), stream);
  }

  /// `arrays` holds mean, rstd and weight as [C].
  static void backward(kernels::NormaliseGradient arrays, const ArrayView& dweight,
                       const ArrayView& dbias, StreamRef stream) {
    const ArrayView& x = arrays.x;
    const Scratch scratch(kernels::channel_scratch_bytes(x), stream);
    const ChannelArray sums(x, stream, 2);
    kernels::channel_gradient_sums(sums.view(), arrays.dy, x, arrays.mean, arrays.rstd,
                                   scratch.data(), stream);
    if (dbias) kernels::copy({.out = dbias, .in = sums.view(0)}, stream);
    if (dweight) kernels::copy({.out = dweight, .in = sums.view(1)}, stream);
    if (!arrays.dx) return;
    const Parameter scale(arrays.weight, 1.0, x, stream);
    arrays.mean = over(arrays.mean, x);
    arrays.rstd = over(arrays.rstd, x);
    arrays.weight = over(scale.view(), x);
    arrays.sum = over(sums.view(0), x);
    arrays.product_sum = over(sums.view(1), x);
    kernels::normalise_backward(arrays, stream);
  }
};

}  // namespace

BatchNorm& cuda_families::batch_norm() {
  static CudaBatchNorm family;
  return family;
}

}  // namespace lockstep::backend
