#include "cuda/batch_norm.hpp"

namespace lockstep::cuda_kernels {
namespace {

using functional::NormStatistics;
using functional::NormSums;

/// How the gradient in front of ReLU is found.
enum class ReluGradient : unsigned char {
  none,       ///< there was no ReLU
  of_result,  ///< from the forward call's result
  of_input,   ///< from x, whose normalisation is repeated
};

template <class T>
struct GradientArrays {
  const T* dy;
  const T* x;
  const T* y;  ///< of_result: the forward call's
  T* dz;       ///< of_result: written
  ReluGradient relu;
};

/// The largest value of A that T rounds to 0.
template <class A, class T>
inline constexpr A rounded_to_zero = A(0);
template <>
inline constexpr float rounded_to_zero<float, BFloat16> = 0x1p-134f;
template <>
inline constexpr float rounded_to_zero<float, Half> = 0x1p-25f;

/// The gradient in front of ReLU, by its result.
template <class A, class T>
__device__ T by_result(T dy, T y) {
  return convert<A>(y) <= A(0) ? T{} : dy;
}

/// The gradient in front of ReLU, by x. What was rounded to 0 in forward passes nothing back.
template <class A, class T>
__device__ T by_input(T dy, T x, A mean, A scale, A bias) {
  const A y = functional::batch_norm<A>(convert<A>(x), mean, scale, bias);
  return y <= rounded_to_zero<A, T> ? T{} : dy;
}

/// Sums of dz and dz * (x - mean), with dz = dy where there is no ReLU. One kernel for all three
/// ways to find dz would need more registers than a full multiprocessor has.
template <class T, ReluGradient relu>
struct GradientPass {
  using A = AccumulateType<T>;
  using Value = NormSums<A>;
  GradientArrays<T> arrays;
  ChannelNorm norm;

  template <int lanes, bool is_planar>
  class Sums {
    static constexpr int own = channels_of_thread<lanes, is_planar>;

   public:
    static constexpr int rows_at_once = 1;

    __device__ Sums(const GradientPass& pass, const ChannelTiles& tiles) : arrays_(pass.arrays) {
      const ChannelNorm& norm = pass.norm;
      load_coefficients(coefficients_, tiles, [&](std::int64_t channel) {
        const auto [mean, rstd] = norm.template statistics<A>(channel);
        return Pack<A, 3>{mean, rstd * norm.weight.load(channel, A(1)),
                          norm.bias.load(channel, A(0))};
      });
    }
    __device__ void add(const std::int64_t (&at)[1]) {
      const Vector<T, lanes> x = load_vector<lanes>(arrays_.x + at[0]);
      Vector<T, lanes> gradient = load_vector<lanes>(arrays_.dy + at[0]);
      const auto& [mean, scale, bias] = coefficients_;
      if constexpr (relu == ReluGradient::of_result) {
        const Vector<T, lanes> y = load_vector<lanes>(arrays_.y + at[0]);
        LOCKSTEP_UNROLL
        for (int j = 0; j < lanes; ++j)
          gradient.lane[j] = by_result<A>(gradient.lane[j], y.lane[j]);
        store_vector<lanes>(arrays_.dz + at[0], gradient);
      }
      LOCKSTEP_UNROLL
      for (int j = 0; j < lanes; ++j) {
        const int c = j % own;
        if constexpr (relu == ReluGradient::of_input)
          gradient.lane[j] = by_input(gradient.lane[j], x.lane[j], mean[c], scale[c], bias[c]);
        sums_[j] = sums_[j] + functional::batch_norm_terms<A>(convert<A>(gradient.lane[j]),
                                                              convert<A>(x.lane[j]), mean[c]);
      }
    }
    __device__ const Value& value(int j) const { return sums_[j]; }

   private:
    GradientArrays<T> arrays_;
    Pack<A, own> coefficients_[3];
    Value sums_[lanes] = {};
  };
};

/// Stores the sums of dz and dz * xhat.
template <class A>
struct StoreSums {
  ChannelNorm norm;
  ChannelVector sum, product_sum, dbias, dweight;
  __device__ void operator()(std::int64_t channel, const NormSums<A>& sums) const {
    const A product = sums.product * norm.template statistics<A>(channel).rstd;
    sum.store(channel, sums.plain);
    product_sum.store(channel, product);
    dbias.store(channel, sums.plain);
    dweight.store(channel, product);
  }
};

/// What the sums of a channel bring to the gradient of each of its elements.
struct ChannelSums {
  ChannelVector sum, product_sum;
  double inverse_count;
};

/// dx = rstd * weight * (dz - sum / count - xhat * product_sum / count).
template <class T, int lanes, bool is_planar>
__global__ void __launch_bounds__(tile_threads, tile_blocks)
    input_gradient_kernel(LOCKSTEP_GRID_CONSTANT(ChannelTiles) tiles,
                          LOCKSTEP_GRID_CONSTANT(ChannelNorm) norm,
                          LOCKSTEP_GRID_CONSTANT(ChannelSums) sums, GradientArrays<T> arrays,
                          T* dx) {
  using A = AccumulateType<T>;
  constexpr int own = channels_of_thread<lanes, is_planar>;
  Pack<A, own> coefficients[5];
  load_coefficients(coefficients, tiles, [&](std::int64_t channel) {
    const auto gradient = functional::BatchNormGradient<A>::of(
        norm.template statistics<A>(channel), norm.weight.load(channel, A(1)),
        {sums.sum.load(channel, A(0)), sums.product_sum.load(channel, A(0))},
        static_cast<A>(sums.inverse_count));
    return Pack<A, 5>{gradient.mean, gradient.scale, gradient.offset, gradient.slope,
                      norm.bias.load(channel, A(0))};
  });
  const auto& [mean, scale, offset, slope, bias] = coefficients;
  tiles.for_each_row([&](const std::int64_t(&at)[1]) {
    const Vector<T, lanes> x = load_vector<lanes>(arrays.x + at[0]);
    Vector<T, lanes> gradient = load_vector<lanes>(arrays.dy + at[0]);
    LOCKSTEP_UNROLL
    for (int j = 0; j < lanes; ++j) {
      const int c = j % own;
      if (arrays.relu == ReluGradient::of_input)
        gradient.lane[j] = by_input(gradient.lane[j], x.lane[j], mean[c], scale[c], bias[c]);
      const functional::BatchNormGradient<A> of_input{mean[c], scale[c], offset[c], slope[c]};
      gradient.lane[j] = convert<T>(of_input(convert<A>(gradient.lane[j]), convert<A>(x.lane[j])));
    }
    store_vector<lanes>(dx + at[0], gradient);
  });
}

template <class T>
void input_gradient(const ArrayView& dx, const ArrayView& x, const GradientArrays<T>& arrays,
                    const ChannelNorm& norm, const ChannelSums& sums, StreamRef stream) {
  with_channel_tiles<T>(
      x,
      [&]<int lanes, bool is_planar>(const ChannelTiles& tiles) {
        launch(stream, tiles.grid(), tiles.block(), 0, input_gradient_kernel<T, lanes, is_planar>,
               tiles, norm, sums, arrays, dx.as<T>());
      },
      arrays.dy, arrays.x, dx.as<T>());
}

template <class T, class Arguments>
GradientArrays<T> arrays_of(const Arguments& a) {
  GradientArrays<T> arrays{.dy = a.dy.template as<T>(),
                           .x = a.x.template as<T>(),
                           .y = nullptr,
                           .dz = nullptr,
                           .relu = ReluGradient::none};
  if (!a.relu.y) return arrays;
  arrays.y = a.relu.y.template as<T>();
  arrays.dz = a.relu.dz.template as<T>();
  arrays.relu = ReluGradient::of_result;
  return arrays;
}

template <class T>
void sum_gradients(const ArrayView& x, const GradientArrays<T>& arrays, const ChannelNorm& norm,
                   const StoreSums<AccumulateType<T>>& store, StreamRef stream) {
  const auto sum = [&]<ReluGradient relu>() {
    reduce_channels<T>(stream, x, GradientPass<T, relu>{arrays, norm}, store, arrays.dy, arrays.x,
                       arrays.y, static_cast<const T*>(arrays.dz));
  };
  switch (arrays.relu) {
    case ReluGradient::none: return sum.template operator()<ReluGradient::none>();
    case ReluGradient::of_result: return sum.template operator()<ReluGradient::of_result>();
    case ReluGradient::of_input: return sum.template operator()<ReluGradient::of_input>();
  }
}

/// Gradients of both modes. @param inverse_count 0 for constant statistics.
template <class Arguments>
void backward(const Arguments& a, const ChannelNorm& norm, double inverse_count, StreamRef stream) {
  dispatch_floating(a.x.dtype, "batch_norm_backward", [&]<class T>(TypeTag<T>) {
    const ChannelScratch<T> sums(2, a.x.shape[1], stream);
    GradientArrays<T> arrays = arrays_of<T>(a);
    // Without a residual the sign of y follows from x: neither y nor dz has to pass.
    if (arrays.relu == ReluGradient::of_result && !a.relu.has_residual && arrays.dz == a.dx.data)
      arrays.relu = ReluGradient::of_input;
    sum_gradients<T>(a.x, arrays, norm, {norm, sums[0], sums[1], a.dbias, a.dweight}, stream);
    if (!a.dx) return;
    if (arrays.relu == ReluGradient::of_result) {
      arrays.dy = arrays.dz;
      arrays.relu = ReluGradient::none;
    }
    input_gradient<T>(a.dx, a.x, arrays, norm, {sums[0], sums[1], inverse_count}, stream);
  });
}

}  // namespace

void batch_norm::train_backward(const kernels::BatchNormTrainBackwardArguments& a,
                                StreamRef stream) {
  const double share = static_cast<double>(a.x.shape[1]) /
                       static_cast<double>(std::max(a.x.numel(), std::int64_t{1}));
  backward(a,
           {.mean = a.save_mean, .deviation = a.save_rstd, .weight = a.weight, .bias = a.relu.bias},
           share, stream);
}

void batch_norm::eval_backward(const kernels::BatchNormEvalBackwardArguments& a, StreamRef stream) {
  backward(a,
           {.mean = a.running_mean,
            .deviation = a.running_var,
            .has_variance = true,
            .eps = a.eps,
            .weight = a.weight,
            .bias = a.relu.bias},
           0.0, stream);
}

void batch_norm::gradient_sums(const kernels::BatchNormGradientSumsArguments& a, StreamRef stream) {
  dispatch_floating(a.x.dtype, "batch_norm_backward", [&]<class T>(TypeTag<T>) {
    const ChannelNorm norm{
        .mean = a.mean, .deviation = a.variance, .has_variance = true, .eps = a.eps};
    sum_gradients<T>(a.x, arrays_of<T>(a), norm, {norm, a.dy_sum, a.product_sum, {}, {}}, stream);
  });
}

void batch_norm::input_gradient(const kernels::BatchNormInputGradientArguments& a,
                                StreamRef stream) {
  dispatch_floating(a.x.dtype, "batch_norm_backward", [&]<class T>(TypeTag<T>) {
    const GradientArrays<T> arrays{.dy = a.dy.as<T>(),
                                   .x = a.x.as<T>(),
                                   .y = nullptr,
                                   .dz = nullptr,
                                   .relu = ReluGradient::none};
    cuda_kernels::input_gradient<T>(a.dx, a.x, arrays,
                                    {.mean = a.mean,
                                     .deviation = a.variance,
                                     .has_variance = true,
                                     .eps = a.eps,
                                     .weight = a.weight},
                                    {a.dy_mean, a.product_mean, 1.0}, stream);
  });
}

}  // namespace lockstep::cuda_kernels
