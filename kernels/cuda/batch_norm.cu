#include "cuda/batch_norm.hpp"

namespace lockstep::cuda_kernels {
namespace {

using functional::Moments;

/// Mean and variance in one pass: a few rows' own, joined to those of the rows before (Chan, Golub
/// and LeVeque 1979), so that loads are under way together and one division serves them all.
template <class T>
struct MomentsPass {
  using A = AccumulateType<T>;
  using Value = Moments<A>;
  const T* x;

  template <int lanes, bool is_planar>
  class Sums {
   public:
    static constexpr int rows_at_once = 4;

    __device__ Sums(const MomentsPass& pass, const ChannelTiles&) : x_(pass.x) {}
    template <int rows>
    __device__ void add(const std::int64_t (&at)[rows]) {
      Vector<T, lanes> loaded[rows];
      LOCKSTEP_UNROLL
      for (int k = 0; k < rows; ++k) loaded[k] = load_vector<lanes>(x_ + at[k]);
      const A former = count_;
      count_ += A(rows);
      const A share = A(rows) / count_, weight = former * share;
      LOCKSTEP_UNROLL
      for (int j = 0; j < lanes; ++j) {
        A mean = 0, squares = 0;
        LOCKSTEP_UNROLL
        for (int k = 0; k < rows; ++k) mean += convert<A>(loaded[k].lane[j]);
        mean *= A(1) / A(rows);
        LOCKSTEP_UNROLL
        for (int k = 0; k < rows; ++k) {
          const A deviation = convert<A>(loaded[k].lane[j]) - mean;
          squares += deviation * deviation;
        }
        const A delta = mean - mean_[j];
        mean_[j] += delta * share;
        squares_[j] += squares + delta * delta * weight;
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
  std::int64_t* batches;  ///< counts the calls

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
    if (batches && channel == 0) ++*batches;
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
__global__ void __launch_bounds__(tile_threads, tile_blocks)
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
  tiles.for_each_row([&](const std::int64_t(&at)[1]) {
    const Vector<T, lanes> x = load_vector<lanes>(arrays.x + at[0]);
    Vector<T, lanes> residual{}, y;
    if (arrays.residual) residual = load_vector<lanes>(arrays.residual + at[0]);
    LOCKSTEP_UNROLL
    for (int j = 0; j < lanes; ++j) {
      const int c = j % own;
      A z = functional::batch_norm<A>(convert<A>(x.lane[j]), mean[c], scale[c], bias[c]);
      if (arrays.residual) z += convert<A>(residual.lane[j]);
      y.lane[j] = convert<T>(arrays.relu ? functional::batch_norm_relu(z) : z);
    }
    store_vector<lanes>(arrays.y + at[0], y);
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
  reduce_channels<T>(
      stream, a.x, pass,
      StoreStatistics<A>{
          .mean = statistics[0],
          .rstd = statistics[1],
          .variance = {},
          .save_mean = a.save_mean,
          .save_rstd = a.save_rstd,
          .running_mean = a.running_mean,
          .running_var = a.running_var,
          .momentum = static_cast<A>(a.momentum),
          .eps = static_cast<A>(a.eps),
          .batches = a.num_batches_tracked ? a.num_batches_tracked.as<std::int64_t>() : nullptr},
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
