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

/// What a channel's elements are normalised with. `scale` and `bias` serve ReluGradient::of_input.
template <class A>
struct ChannelOfGradient {
  NormStatistics<A> statistics;
  A scale, bias;

  /// The gradient in front of ReLU. The result is rounded as it was in forward: what became 0 there
  /// passes nothing back.
  template <class T>
  __device__ T in_front_of_relu(T dy, T x) const {
    const T y = convert<T>(functional::batch_norm<A>(convert<A>(x), statistics.mean, scale, bias));
    return convert<T>(functional::batch_norm_relu_gradient(convert<A>(dy), convert<A>(y)));
  }
};

/// Sums of dz and dz * xhat, with dz = dy where there is no ReLU.
template <class T>
struct GradientPass {
  using A = AccumulateType<T>;
  using Value = NormSums<A>;
  GradientArrays<T> arrays;
  ChannelNorm norm;

  template <int lanes, bool is_planar>
  class Sums {
    static constexpr int own = channels_of_thread<lanes, is_planar>;

   public:
    __device__ Sums(const GradientPass& pass, const ChannelTiles& tiles) : arrays_(pass.arrays) {
      const ChannelNorm& norm = pass.norm;
      load_coefficients(coefficients_, tiles, [&](std::int64_t channel) {
        const auto [mean, rstd] = norm.template statistics<A>(channel);
        return Pack<A, 4>{mean, rstd, rstd * norm.weight.load(channel, A(1)),
                          norm.bias.load(channel, A(0))};
      });
    }
    __device__ void add(std::int64_t at) {
      const Vector<T, lanes> x = load_vector<lanes>(arrays_.x + at);
      Vector<T, lanes> gradient = load_vector<lanes>(arrays_.dy + at);
      if (arrays_.relu == ReluGradient::of_result) {
        const Vector<T, lanes> y = load_vector<lanes>(arrays_.y + at);
        LOCKSTEP_UNROLL
        for (int j = 0; j < lanes; ++j)
          gradient.lane[j] = convert<T>(functional::batch_norm_relu_gradient(
              convert<A>(gradient.lane[j]), convert<A>(y.lane[j])));
        store_vector<lanes>(arrays_.dz + at, gradient);
      }
      LOCKSTEP_UNROLL
      for (int j = 0; j < lanes; ++j) {
        const auto own_channel = channel(j % own);
        if (arrays_.relu == ReluGradient::of_input)
          gradient.lane[j] = own_channel.in_front_of_relu(gradient.lane[j], x.lane[j]);
        sums_[j] = sums_[j] + functional::batch_norm_terms<A>(convert<A>(gradient.lane[j]),
                                                              convert<A>(x.lane[j]),
                                                              own_channel.statistics);
      }
    }
    __device__ const Value& value(int j) const { return sums_[j]; }

   private:
    __device__ ChannelOfGradient<A> channel(int c) const {
      const auto& [mean, rstd, scale, bias] = coefficients_;
      return {{mean[c], rstd[c]}, scale[c], bias[c]};
    }

    GradientArrays<T> arrays_;
    Pack<A, own> coefficients_[4];
    Value sums_[lanes] = {};
  };
};

template <class A>
struct StoreSums {
  ChannelVector sum, product_sum, dbias, dweight;
  __device__ void operator()(std::int64_t channel, const NormSums<A>& sums) const {
    sum.store(channel, sums.plain);
    product_sum.store(channel, sums.product);
    dbias.store(channel, sums.plain);
    dweight.store(channel, sums.product);
  }
};

/// What the sums of a channel bring to the gradient of each of its elements.
struct ChannelSums {
  ChannelVector sum, product_sum;
  double inverse_count;
};

/// dx = rstd * weight * (dz - sum / count - xhat * product_sum / count).
template <class T, int lanes, bool is_planar>
__global__ void __launch_bounds__(tile_threads)
    input_gradient_kernel(LOCKSTEP_GRID_CONSTANT(ChannelTiles) tiles,
                          LOCKSTEP_GRID_CONSTANT(ChannelNorm) norm,
                          LOCKSTEP_GRID_CONSTANT(ChannelSums) sums, GradientArrays<T> arrays,
                          T* dx) {
  using A = AccumulateType<T>;
  constexpr int own = channels_of_thread<lanes, is_planar>;
  Pack<A, own> coefficients[6];
  load_coefficients(coefficients, tiles, [&](std::int64_t channel) {
    const auto [mean, rstd] = norm.template statistics<A>(channel);
    return Pack<A, 6>{mean,
                      rstd,
                      norm.weight.load(channel, A(1)),
                      norm.bias.load(channel, A(0)),
                      sums.sum.load(channel, A(0)),
                      sums.product_sum.load(channel, A(0))};
  });
  const auto& [mean, rstd, weight, bias, sum, product_sum] = coefficients;
  const A inverse_count = static_cast<A>(sums.inverse_count);
  tiles.for_each_row([&](std::int64_t at) {
    const Vector<T, lanes> x = load_vector<lanes>(arrays.x + at);
    Vector<T, lanes> gradient = load_vector<lanes>(arrays.dy + at);
    LOCKSTEP_UNROLL
    for (int j = 0; j < lanes; ++j) {
      const int c = j % own;
      const ChannelOfGradient<A> channel{{mean[c], rstd[c]}, rstd[c] * weight[c], bias[c]};
      if (arrays.relu == ReluGradient::of_input)
        gradient.lane[j] = channel.in_front_of_relu(gradient.lane[j], x.lane[j]);
      gradient.lane[j] = convert<T>(functional::batch_norm_gradient<A>(
          convert<A>(gradient.lane[j]), convert<A>(x.lane[j]), channel.statistics, weight[c],
          {sum[c], product_sum[c]}, inverse_count));
    }
    store_vector<lanes>(dx + at, gradient);
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
  reduce_channels<T>(stream, x, GradientPass<T>{arrays, norm}, store, arrays.dy, arrays.x, arrays.y,
                     static_cast<const T*>(arrays.dz));
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
    sum_gradients<T>(a.x, arrays, norm, {sums[0], sums[1], a.dbias, a.dweight}, stream);
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
    sum_gradients<T>(a.x, arrays_of<T>(a),
                     {.mean = a.mean, .deviation = a.variance, .has_variance = true, .eps = a.eps},
                     {a.dy_sum, a.product_sum, {}, {}}, stream);
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
