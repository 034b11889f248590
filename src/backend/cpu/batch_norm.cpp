#include "arguments/batch_norm.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/cpu/families.hpp"
#include "backend/cpu/image.hpp"
#include "backend/cpu/typed_row.hpp"
#include "functional/batch_norm.hpp"
#include "lockstep/core/parallel.hpp"

namespace lockstep::backend {
namespace {

using functional::NormStatistics;
using functional::NormSums;

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

/// Calls `visit(x, y)` with one element of each of two arrays, for all elements of a channel.
template <class X, class Y, class Visit>
void for_each_pair(const Planes& planes_x, X* x, const Planes& planes_y, Y* y, std::int64_t channel,
                   Visit&& visit) {
  for (std::int64_t n = 0; n < planes_x.images; ++n) {
    X* px = x + planes_x.offset(n, channel);
    Y* py = y + planes_y.offset(n, channel);
    for (std::int64_t p = 0; p < planes_x.positions; ++p)
      visit(px[p * planes_x.position_stride], py[p * planes_y.position_stride]);
  }
}

/// Mean and biased variance of each channel, in two passes and in double.
struct Statistics {
  std::vector<double> mean, variance;
};

template <class T>
Statistics batch_statistics(const ArrayView& x) {
  const Planes planes(x);
  const T* data = x.as<const T>();
  const auto count = static_cast<double>(planes.images * planes.positions);
  Statistics result{load_vector({}, planes.channels), load_vector({}, planes.channels)};
  parallel_for(planes.channels, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t c = begin; c < end; ++c) {
      double sum = 0, squares = 0;
      const auto over_channel = [&](auto&& visit) {
        for_each_pair(planes, data, planes, data, c, [&](const T& value, const T&) {
          visit(static_cast<double>(static_cast<AccumulateType<T>>(value)));
        });
      };
      over_channel([&](double value) { sum += value; });
      const double mean = sum / count;
      over_channel([&](double value) { squares += (value - mean) * (value - mean); });
      result.mean[static_cast<std::size_t>(c)] = mean;
      result.variance[static_cast<std::size_t>(c)] = squares / count;
    }
  });
  return result;
}

/// y = (x - mean) * rstd * weight + bias.
void normalise(const ArrayView& y, const ArrayView& x, const std::vector<double>& mean,
               const std::vector<double>& rstd, const ArrayView& weight, const ArrayView& bias) {
  const auto scale = load_vector(weight, x.shape[1], 1), shift = load_vector(bias, x.shape[1]);
  const Planes from(x), to(y);
  dispatch_floating(x.dtype, "batch_norm", [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Sum = AccumulateType<T>;
    parallel_for(from.channels, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t c = begin; c < end; ++c) {
        const auto at = static_cast<std::size_t>(c);
        const auto centre = static_cast<Sum>(mean[at]), term = static_cast<Sum>(shift[at]);
        const auto factor = static_cast<Sum>(rstd[at] * scale[at]);
        for_each_pair(from, x.as<const T>(), to, y.as<T>(), c, [&](const T& in, T& out) {
          out = T(functional::batch_norm(static_cast<Sum>(in), centre, factor, term));
        });
      }
    });
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

/// One channel of a backward call.
struct Channel {
  std::int64_t index;
  NormStatistics<double> statistics;
  double weight, inverse_count;
};

/// Sums of dy and of dy * xhat over a channel.
template <class T>
NormSums<double> gradient_sums(const ArrayView& dy, const ArrayView& x, const Channel& channel) {
  NormSums<double> sums{0, 0};
  for_each_pair(Planes(x), x.as<const T>(), Planes(dy), dy.as<const T>(), channel.index,
                [&](const T& value, const T& gradient) {
                  sums = sums + functional::batch_norm_terms<double>(
                                    static_cast<AccumulateType<T>>(gradient),
                                    static_cast<AccumulateType<T>>(value), channel.statistics);
                });
  return sums;
}

template <class T>
void input_gradient(const ArrayView& dx, const ArrayView& dy, const ArrayView& x,
                    const Channel& channel, const NormSums<double>& sums) {
  using Sum = AccumulateType<T>;
  const Planes planes_x(x), planes_dy(dy), planes_dx(dx);
  for (std::int64_t n = 0; n < planes_x.images; ++n) {
    const T* px = x.as<const T>() + planes_x.offset(n, channel.index);
    const T* pdy = dy.as<const T>() + planes_dy.offset(n, channel.index);
    T* pdx = dx.as<T>() + planes_dx.offset(n, channel.index);
    for (std::int64_t p = 0; p < planes_x.positions; ++p) {
      const double g = static_cast<Sum>(pdy[p * planes_dy.position_stride]);
      const double value = static_cast<Sum>(px[p * planes_x.position_stride]);
      pdx[p * planes_dx.position_stride] = T(static_cast<Sum>(functional::batch_norm_gradient(
          g, value, channel.statistics, channel.weight, sums, channel.inverse_count)));
    }
  }
}

/// Gradients of both modes, for which the arguments have names of their own.
template <class Arguments>
void backward(const Arguments& a, const std::vector<double>& mean, const std::vector<double>& rstd,
              bool training) {
  const auto channels = a.x.shape[1];
  const auto count = static_cast<double>(a.x.numel() / std::max<std::int64_t>(channels, 1));
  const auto weight = load_vector(a.weight, channels, 1);
  auto dweight = load_vector({}, channels), dbias = load_vector({}, channels);
  dispatch_floating(a.x.dtype, "batch_norm backward", [&](auto tag) {
    using T = typename decltype(tag)::type;
    parallel_for(channels, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t c = begin; c < end; ++c) {
        const auto at = static_cast<std::size_t>(c);
        const Channel channel{c, {mean[at], rstd[at]}, weight[at], training ? 1 / count : 0.0};
        const NormSums<double> sums = gradient_sums<T>(a.dy, a.x, channel);
        if (a.dx) input_gradient<T>(a.dx, a.dy, a.x, channel, sums);
        dweight[at] = sums.product;
        dbias[at] = sums.plain;
      }
    });
  });
  store_vector(a.dweight, dweight);
  store_vector(a.dbias, dbias);
}

void check(const ArrayView& x) {
  LOCKSTEP_CHECK(x.rank() >= 2, InvalidArgument, "batch_norm: input must be [N, C, ...], got ",
                 x.shape);
}

void train(const kernels::BatchNormTrainArguments& a, StreamRef) {
  check(a.x);
  if (a.x.numel() == 0) return;
  const auto count = static_cast<double>(a.x.numel() / a.x.shape[1]);
  Statistics batch = dispatch_floating(a.x.dtype, "batch_norm", [&](auto tag) {
    return batch_statistics<typename decltype(tag)::type>(a.x);
  });
  const auto rstd = reciprocal_deviation(batch.variance, a.eps);
  normalise(a.y, a.x, batch.mean, rstd, a.weight, a.bias);
  store_vector(a.save_mean, batch.mean);
  store_vector(a.save_rstd, rstd);
  for (double& variance : batch.variance) variance *= count / std::max(count - 1, 1.0);
  move_running(a.running_mean, batch.mean, a.momentum);
  move_running(a.running_var, batch.variance, a.momentum);
}

void eval(const kernels::BatchNormEvalArguments& a, StreamRef) {
  check(a.x);
  const auto channels = a.x.shape[1];
  const auto rstd = reciprocal_deviation(load_vector(a.running_var, channels), a.eps);
  normalise(a.y, a.x, load_vector(a.running_mean, channels), rstd, a.weight, a.bias);
}

void train_backward(const kernels::BatchNormTrainBackwardArguments& a, StreamRef) {
  const auto channels = a.x.shape[1];
  backward(a, load_vector(a.save_mean, channels), load_vector(a.save_rstd, channels), true);
}

void eval_backward(const kernels::BatchNormEvalBackwardArguments& a, StreamRef) {
  const auto channels = a.x.shape[1];
  const auto rstd = reciprocal_deviation(load_vector(a.running_var, channels), a.eps);
  backward(a, load_vector(a.running_mean, channels), rstd, false);
}

}  // namespace

kernels::BatchNormKernels cpu_batch_norm() {
  return {.train = train,
          .eval = eval,
          .train_backward = train_backward,
          .eval_backward = eval_backward};
}

}  // namespace lockstep::backend
