#include "cuda/batch_norm.hpp"

namespace lockstep::cuda_kernels {
namespace {

using functional::Moments;

/// Mean and variance in one pass (Welford 1962).
template <class T>
struct MomentsPass {
  using A = AccumulateType<T>;
  using Value = Moments<A>;
  const T* x;

  template <int lanes, bool is_planar>
  class Sums {
   public:
    __device__ Sums(const MomentsPass& pass, const ChannelTiles&) : x_(pass.x) {}
    __device__ void add(std::int64_t at) {
      const Vector<T, lanes> loaded = load_vector<lanes>(x_ + at);
      count_ += A(1);
      const A share = A(1) / count_;
      LOCKSTEP_UNROLL
      for (int j = 0; j < lanes; ++j) {
        const A value = convert<A>(loaded.lane[j]), delta = value - mean_[j];
        mean_[j] += delta * share;
        squares_[j] += delta * (value - mean_[j]);
      }
    }
    __device__ Value value(int j) const { return {count_, mean_[j], squares_[j]}; }

   private:
    const T* x_;
    A count_ = 0;
    Pack<A, lanes> mean_{}, squares_{};
  };
};

/// Where a channel's statistics go; each may be absent.
template <class A>
struct StoreStatistics {
  ChannelVector mean, rstd, variance, save_mean, save_rstd, running_mean, running_var;
  A momentum, eps;

  __device__ void operator()(std::int64_t channel, const Moments<A>& moments) const {
    const A biased = moments.squares / moments.count;
    const A deviation = functional::inverse_deviation(biased, eps);
    mean.store(channel, moments.mean);
    rstd.store(channel, deviation);
    variance.store(channel, biased);
    save_mean.store(channel, moments.mean);
    save_rstd.store(channel, deviation);
    move(running_mean, channel, moments.mean);
    move(running_var, channel, moments.squares / (moments.count - A(1)));
  }

 private:
  __device__ void move(const ChannelVector& running, std::int64_t channel, A batch) const {
    if (!running) return;
    const A former = running.load(channel, A(0));
    running.store(channel, functional::moved_running(former, batch, momentum));
  }
};

template <class T>
struct NormaliseArrays {
  T* y;
  const T* x;
  const T* residual;  ///< may be null
  bool relu;
};

/// y = (x - mean) * rstd * weight + bias, plus the residual, through ReLU where asked for.
template <class T, int lanes, bool is_planar>
__global__ void __launch_bounds__(tile_threads)
    normalise_kernel(LOCKSTEP_GRID_CONSTANT(ChannelTiles) tiles,
                     LOCKSTEP_GRID_CONSTANT(ChannelNorm) norm, NormaliseArrays<T> arrays) {
  using A = AccumulateType<T>;
  constexpr int own = channels_of_thread<lanes, is_planar>;
  Pack<A, own> coefficients[3];
  load_coefficients(coefficients, tiles, [&](std::int64_t channel) {
    const auto [mean, rstd] = norm.template statistics<A>(channel);
    return Pack<A, 3>{mean, rstd * norm.weight.load(channel, A(1)), norm.bias.load(channel, A(0))};
  });
  const auto& [mean, scale, bias] = coefficients;
  tiles.for_each_row([&](std::int64_t at) {
    const Vector<T, lanes> x = load_vector<lanes>(arrays.x + at);
    Vector<T, lanes> residual{}, y;
    if (arrays.residual) residual = load_vector<lanes>(arrays.residual + at);
    LOCKSTEP_UNROLL
    for (int j = 0; j < lanes; ++j) {
      const int c = j % own;
      A z = functional::batch_norm<A>(convert<A>(x.lane[j]), mean[c], scale[c], bias[c]);
      if (arrays.residual) z += convert<A>(residual.lane[j]);
      y.lane[j] = convert<T>(arrays.relu ? functional::batch_norm_relu(z) : z);
    }
    store_vector<lanes>(arrays.y + at, y);
  });
}

template <class T, class Arguments>
void normalise(const Arguments& a, const ChannelNorm& norm, StreamRef stream) {
  const NormaliseArrays<T> arrays{.y = a.y.template as<T>(),
                                  .x = a.x.template as<T>(),
                                  .residual = a.residual ? a.residual.template as<T>() : nullptr,
                                  .relu = a.relu};
  with_channel_tiles<T>(
      a.x,
      [&]<int lanes, bool is_planar>(const ChannelTiles& tiles) {
        launch(stream, tiles.grid(), tiles.block(), 0, normalise_kernel<T, lanes, is_planar>, tiles,
               norm, arrays);
      },
      arrays.y, arrays.x, arrays.residual);
}

template <class T>
void train(const kernels::BatchNormTrainArguments& a, StreamRef stream) {
  using A = AccumulateType<T>;
  const ChannelScratch<T> statistics(2, a.x.shape[1], stream);
  const MomentsPass<T> pass{a.x.as<T>()};
  reduce_channels<T>(stream, a.x, pass,
                     StoreStatistics<A>{.mean = statistics[0],
                                        .rstd = statistics[1],
                                        .variance = {},
                                        .save_mean = a.save_mean,
                                        .save_rstd = a.save_rstd,
                                        .running_mean = a.running_mean,
                                        .running_var = a.running_var,
                                        .momentum = static_cast<A>(a.momentum),
                                        .eps = static_cast<A>(a.eps)},
                     pass.x);
  normalise<T>(
      a, {.mean = statistics[0], .deviation = statistics[1], .weight = a.weight, .bias = a.bias},
      stream);
}

}  // namespace

void batch_norm::train(const kernels::BatchNormTrainArguments& a, StreamRef stream) {
  dispatch_floating(a.x.dtype, "batch_norm",
                    [&]<class T>(TypeTag<T>) { cuda_kernels::train<T>(a, stream); });
}

void batch_norm::eval(const kernels::BatchNormEvalArguments& a, StreamRef stream) {
  const ChannelNorm norm{.mean = a.running_mean,
                         .deviation = a.running_var,
                         .has_variance = true,
                         .eps = a.eps,
                         .weight = a.weight,
                         .bias = a.bias};
  dispatch_floating(a.x.dtype, "batch_norm",
                    [&]<class T>(TypeTag<T>) { normalise<T>(a, norm, stream); });
}

void batch_norm::statistics(const kernels::BatchNormStatisticsArguments& a, StreamRef stream) {
  dispatch_floating(a.x.dtype, "batch_norm", [&]<class T>(TypeTag<T>) {
    StoreStatistics<AccumulateType<T>> store{};
    store.mean = a.mean;
    store.variance = a.variance;
    const MomentsPass<T> pass{a.x.as<T>()};
    reduce_channels<T>(stream, a.x, pass, store, pass.x);
  });
}

}  // namespace lockstep::cuda_kernels
