#include "arguments/batch_norm.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "cpu/channel_walk.hpp"
#include "cpu/loops.hpp"
#include "cpu/typed_row.hpp"
#include "functional/batch_norm.hpp"

namespace lockstep::cpu_kernels {
namespace {

/// A [C] vector as doubles; `absent` where the view is.
std::vector<double> load_vector(const ArrayView& view, std::int64_t count, double absent = 0) {
  std::vector<double> values(static_cast<std::size_t>(count), absent);
  if (view) load_row(values.data(), view, 0, view.strides[0], count);
  return values;
}

void store_vector(const ArrayView& view, const std::vector<double>& values) {
  if (view)
    store_row(view, 0, view.strides[0], values.data(), static_cast<std::int64_t>(values.size()));
}

/// The loops of a dtype for the blocks of a walk. @throws Unsupported unless it is floating.
const ChannelLoops& loops_of(const ChannelWalk& walk, DType dtype) {
  LOCKSTEP_CHECK(is_floating(dtype), Unsupported, "batch_norm: dtype ", dtype,
                 " is not offered on device cpu");
  const auto index = static_cast<std::size_t>(dtype);
  return walk.by_plane() ? loops().planes[index] : loops().channels[index];
}

/// Folds partial results, [columns] of each piece, into one a channel, in an order that depends on
/// the walk alone. `Value` is what pieces leave of a channel; `fill(piece, values)` computes the
/// [fold * columns] values of one piece.
template <class Value, class Fill>
std::vector<Value> reduce_channels(const ChannelWalk& walk, std::int64_t channels, Fill&& fill) {
  const auto columns = static_cast<std::size_t>(walk.channels_of_piece());
  std::vector<Value> partial(static_cast<std::size_t>(walk.pieces()) * columns);
  walk.for_each_piece([&](std::int64_t index) {
    std::vector<Value> lanes(columns * static_cast<std::size_t>(walk.fold()), Value{});
    fill(walk.piece(index), lanes);
    Value* const sums = partial.data() + static_cast<std::size_t>(index) * columns;
    for (std::size_t i = 0; i < lanes.size(); ++i) sums[i % columns] = sums[i % columns] + lanes[i];
  });
  std::vector<Value> total(static_cast<std::size_t>(channels), Value{});
  for (std::int64_t i = 0; i < walk.pieces(); ++i) {
    const auto first = static_cast<std::size_t>(walk.piece(i).first_channel);
    for (std::size_t c = 0; c < columns; ++c)
      total[first + c] = total[first + c] + partial[static_cast<std::size_t>(i) * columns + c];
  }
  return total;
}

/// Mean and biased variance of each channel.
struct Statistics {
  std::vector<double> mean, variance;
};

Statistics batch_statistics(const ArrayView& x) {
  using Moments = functional::Moments<double>;
  const ChannelWalk walk(x, {}, {});
  const auto loop = loops_of(walk, x.dtype).moments;
  const auto moments = reduce_channels<Moments>(
      walk, x.shape[1], [&](const ChannelWalk::Piece& piece, std::vector<Moments>& lanes) {
        std::vector<double> mean(lanes.size()), squares(lanes.size());
        double count = 0;
        walk.for_each_block(piece, [&](const ChannelBlock& block) {
          loop(block, mean.data(), squares.data(), count);
          const bool by_plane = walk.by_plane();
          const auto values =
              static_cast<double>(by_plane ? block.rows * block.columns : block.rows);
          const auto filled = by_plane ? 1 : static_cast<std::size_t>(block.columns);
          for (std::size_t i = 0; i < filled; ++i) lanes[i].count += values;
          count += values;
        });
        for (std::size_t i = 0; i < lanes.size(); ++i)
          lanes[i] = {lanes[i].count, mean[i], squares[i]};
      });
  Statistics result;
  for (const Moments& channel : moments) {
    result.mean.push_back(channel.mean);
    result.variance.push_back(channel.squares / channel.count);
  }
  return result;
}

/// Values of channels in a dtype's accumulation type, as the blocks of a walk read them.
class Spread {
 public:
  Spread(const ChannelWalk& walk, DType dtype, const std::vector<double>& channels) {
    if (dtype == DType::f64)
      doubles_ = walk.spread<double>(channels);
    else
      floats_ = walk.spread<float>(channels);
  }
  const void* at(std::int64_t place) const {
    if (floats_.empty()) return doubles_.data() + place;
    return floats_.data() + place;
  }

 private:
  std::vector<double> doubles_;
  std::vector<float> floats_;
};

/// y = (x - mean) * rstd * weight + bias, and what else the call asks for.
template <class Arguments>
void normalise(const Arguments& a, const std::vector<double>& mean,
               const std::vector<double>& rstd) {
  const ArrayView& x = a.x;
  if (x.numel() == 0) return;
  auto factor = load_vector(a.weight, x.shape[1], 1);
  for (std::size_t c = 0; c < factor.size(); ++c) factor[c] *= rstd[c];
  const ChannelWalk walk(x, {}, a.y, a.residual);
  const Spread centre(walk, x.dtype, mean), scale(walk, x.dtype, factor),
      shift(walk, x.dtype, load_vector(a.bias, x.shape[1]));
  const auto loop = loops_of(walk, x.dtype).normalise;
  walk.for_each_piece([&](std::int64_t index) {
    const auto piece = walk.piece(index);
    const std::int64_t at = walk.place(piece);
    const ChannelVectors vectors{
        .mean = centre.at(at), .scale = scale.at(at), .bias = shift.at(at)};
    walk.for_each_block(piece, [&](const ChannelBlock& block) { loop(block, vectors, a.relu); });
  });
}

/// running += momentum * (batch - running).
void move_running(const ArrayView& running, const std::vector<double>& batch, double momentum) {
  if (!running) return;
  auto values = load_vector(running, static_cast<std::int64_t>(batch.size()));
  for (std::size_t c = 0; c < values.size(); ++c)
    values[c] = functional::moved_running(values[c], batch[c], momentum);
  store_vector(running, values);
}

std::vector<double> reciprocal_deviation(const std::vector<double>& variance, double eps) {
  std::vector<double> rstd(variance.size());
  for (std::size_t c = 0; c < rstd.size(); ++c)
    rstd[c] = functional::inverse_deviation(variance[c], eps);
  return rstd;
}

/// What the gradients of a channel are made of.
struct GradientSums {
  std::vector<double> plain, product;  ///< of dy, and of dy * xhat
};

/// The sums; ReLU's gradient is written beside them.
GradientSums sums_of(const ArrayView& x, const ArrayView& dy, const kernels::BatchNormRelu& relu,
                     const std::vector<double>& mean, const std::vector<double>& rstd) {
  using Sums = functional::NormSums<double>;
  const ChannelWalk walk(x, dy, relu.dz, relu.y);
  const Spread centre(walk, x.dtype, mean), deviation(walk, x.dtype, rstd);
  const auto loop = loops_of(walk, x.dtype).gradient_sums;
  const auto sums = reduce_channels<Sums>(
      walk, x.shape[1], [&](const ChannelWalk::Piece& piece, std::vector<Sums>& lanes) {
        std::vector<double> plain(lanes.size()), product(lanes.size());
        const std::int64_t at = walk.place(piece);
        const ChannelVectors vectors{.mean = centre.at(at), .rstd = deviation.at(at)};
        walk.for_each_block(piece, [&](const ChannelBlock& block) {
          loop(block, vectors, plain.data(), product.data());
        });
        for (std::size_t i = 0; i < lanes.size(); ++i) lanes[i] = {plain[i], product[i]};
      });
  GradientSums result;
  for (const Sums& channel : sums) {
    result.plain.push_back(channel.plain);
    result.product.push_back(channel.product);
  }
  return result;
}

/// dx, from the gradient behind the normalisation. @param inverse_count of what was summed.
void gradient_of_input(const ArrayView& dx, const ArrayView& dy, const ArrayView& x,
                       const ArrayView& weight, const std::vector<double>& mean,
                       const std::vector<double>& rstd, const GradientSums& sums,
                       double inverse_count) {
  const ChannelWalk walk(x, dy, dx);
  const Spread centre(walk, x.dtype, mean), deviation(walk, x.dtype, rstd),
      factor(walk, x.dtype, load_vector(weight, x.shape[1], 1)), dy_sum(walk, x.dtype, sums.plain),
      product_sum(walk, x.dtype, sums.product);
  const auto loop = loops_of(walk, x.dtype).input_gradient;
  walk.for_each_piece([&](std::int64_t index) {
    const auto piece = walk.piece(index);
    const std::int64_t at = walk.place(piece);
    const ChannelVectors vectors{.mean = centre.at(at),
                                 .rstd = deviation.at(at),
                                 .weight = factor.at(at),
                                 .dy_sum = dy_sum.at(at),
                                 .product_sum = product_sum.at(at),
                                 .inverse_count = inverse_count};
    walk.for_each_block(piece, [&](const ChannelBlock& block) { loop(block, vectors); });
  });
}

/// Gradients of both modes, for which the arguments have names of their own.
template <class Arguments>
void backward(const Arguments& a, const std::vector<double>& mean, const std::vector<double>& rstd,
              bool training) {
  const auto channels = a.x.shape[1];
  if (a.x.numel() == 0) {
    const std::vector<double> zeros(static_cast<std::size_t>(channels));
    store_vector(a.dweight, zeros);
    return store_vector(a.dbias, zeros);
  }
  const GradientSums sums = sums_of(a.x, a.dy, a.relu, mean, rstd);
  const double share = static_cast<double>(channels) / static_cast<double>(a.x.numel());
  const ArrayView& dz = a.relu.y ? a.relu.dz : a.dy;
  if (a.dx && training)
    gradient_of_input(a.dx, dz, a.x, a.weight, mean, rstd, sums, share);
  else if (a.dx)  // of a line with that slope
    normalise(kernels::BatchNormEvalArguments{.y = a.dx, .x = dz, .weight = a.weight},
              std::vector<double>(mean.size()), rstd);
  store_vector(a.dweight, sums.product);
  store_vector(a.dbias, sums.plain);
}

void check(const ArrayView& x) {
  LOCKSTEP_CHECK(x.rank() >= 2, InvalidArgument, "batch_norm: input must be [N, C, ...], got ",
                 x.shape);
}

}  // namespace

void batch_norm::train(const kernels::BatchNormTrainArguments& a, StreamRef) {
  check(a.x);
  if (a.x.numel() == 0) return;
  const auto count = static_cast<double>(a.x.numel() / a.x.shape[1]);
  Statistics batch = batch_statistics(a.x);
  const auto rstd = reciprocal_deviation(batch.variance, a.eps);
  normalise(a, batch.mean, rstd);
  store_vector(a.save_mean, batch.mean);
  store_vector(a.save_rstd, rstd);
  for (double& variance : batch.variance) variance *= count / std::max(count - 1, 1.0);
  move_running(a.running_mean, batch.mean, a.momentum);
  move_running(a.running_var, batch.variance, a.momentum);
  if (a.num_batches_tracked) ++*a.num_batches_tracked.as<std::int64_t>();
}

void batch_norm::eval(const kernels::BatchNormEvalArguments& a, StreamRef) {
  check(a.x);
  const auto channels = a.x.shape[1];
  const auto rstd = reciprocal_deviation(load_vector(a.running_var, channels), a.eps);
  normalise(a, load_vector(a.running_mean, channels), rstd);
}

void batch_norm::train_backward(const kernels::BatchNormTrainBackwardArguments& a, StreamRef) {
  const auto channels = a.x.shape[1];
  backward(a, load_vector(a.save_mean, channels), load_vector(a.save_rstd, channels), true);
}

void batch_norm::eval_backward(const kernels::BatchNormEvalBackwardArguments& a, StreamRef) {
  const auto channels = a.x.shape[1];
  const auto rstd = reciprocal_deviation(load_vector(a.running_var, channels), a.eps);
  backward(a, load_vector(a.running_mean, channels), rstd, false);
}

void batch_norm::statistics(const kernels::BatchNormStatisticsArguments& a, StreamRef) {
  check(a.x);
  const Statistics batch = batch_statistics(a.x);
  store_vector(a.mean, batch.mean);
  store_vector(a.variance, batch.variance);
}

void batch_norm::gradient_sums(const kernels::BatchNormGradientSumsArguments& a, StreamRef) {
  check(a.x);
  const auto channels = a.x.shape[1];
  const auto rstd = reciprocal_deviation(load_vector(a.variance, channels), a.eps);
  const GradientSums sums = sums_of(a.x, a.dy, a.relu, load_vector(a.mean, channels), rstd);
  store_vector(a.dy_sum, sums.plain);
  store_vector(a.product_sum, sums.product);
}

void batch_norm::input_gradient(const kernels::BatchNormInputGradientArguments& a, StreamRef) {
  check(a.x);
  if (a.x.numel() == 0) return;
  const auto channels = a.x.shape[1];
  const auto rstd = reciprocal_deviation(load_vector(a.variance, channels), a.eps);
  gradient_of_input(a.dx, a.dy, a.x, a.weight, load_vector(a.mean, channels), rstd,
                    {load_vector(a.dy_mean, channels), load_vector(a.product_mean, channels)}, 1.0);
}

}  // namespace lockstep::cpu_kernels
