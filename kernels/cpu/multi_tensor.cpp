#include "arguments/multi_tensor.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <vector>

#include "arguments/elementwise.hpp"
#include "cpu/tiles.hpp"
#include "functional/fingerprint.hpp"
#include "lockstep/core/parallel.hpp"

namespace lockstep::cpu_kernels {
namespace {

using functional::SquareSum;

/// Adds the squares of a chunk that is large or not finite, in double.
void add_squares(SquareSum& sum, const void* x, std::int64_t n, bool in_f64) {
  for (std::int64_t i = 0; i < n; ++i) {
    const double value =
        in_f64 ? static_cast<const double*>(x)[i] : double{static_cast<const float*>(x)[i]};
    sum += {value * value, functional::large_square(value)};
  }
}

/// Sum of squares of one array: chunks of fixed size, added in their order.
SquareSum square_sum_of(const ArrayView& array) {
  const std::int64_t n = contiguous_count(array);
  const auto loop = loops().reduce_row(accumulate_of(array.dtype), ReduceOp::square_sum);
  LOCKSTEP_CHECK(n >= 0 && loop, Unsupported, "square_sum: needs contiguous floating arrays, got ",
                 array.dtype, " with strides ", array.strides);
  const auto load = loops().load[static_cast<std::size_t>(array.dtype)];
  const bool direct = is_accumulate_type(array.dtype);
  const auto size = static_cast<std::int64_t>(size_of(array.dtype));
  constexpr std::int64_t chunk = 65536;
  std::vector<SquareSum> partials(static_cast<std::size_t>((n + chunk - 1) / chunk));
  parallel_for(
      static_cast<std::int64_t>(partials.size()), 1, [&](std::int64_t begin, std::int64_t end) {
        std::array<float, tile_elements> tile;
        const auto for_each_piece = [&](std::int64_t c, const auto& visit) {
          const std::int64_t last = std::min(n, (c + 1) * chunk);
          const std::int64_t step = direct ? chunk : tile_elements;
          for (std::int64_t i = c * chunk; i < last; i += step) {
            const void* from = array.as<char>() + i * size;
            const std::int64_t count = std::min(step, last - i);
            if (!direct) load(tile.data(), from, 1, count);
            visit(direct ? from : tile.data(), count);
          }
        };
        for (std::int64_t c = begin; c < end; ++c) {
          SquareSum& sum = partials[static_cast<std::size_t>(c)];
          for_each_piece(c, [&](const void* x, std::int64_t count) { loop(&sum.plain, x, count); });
          if (!functional::is_unbounded(sum.plain)) continue;
          sum = {};  // so rare that a second look costs nothing
          for_each_piece(c, [&](const void* x, std::int64_t count) {
            add_squares(sum, x, count, array.dtype == DType::f64);
          });
          sum = functional::square_sum_of_chunk(sum.plain, sum.large);
        }
      });
  SquareSum total;
  for (const SquareSum& partial : partials) total += partial;
  return total;
}

/// The fingerprint of one array. The sum wraps around: threads may add in any order.
std::uint64_t fingerprint_of(const ArrayView& array) {
  const std::int64_t n = contiguous_count(array);
  LOCKSTEP_CHECK(n >= 0, InvalidArgument, "fingerprint: needs contiguous arrays, got strides ",
                 array.strides);
  std::atomic<std::uint64_t> total{0};
  functional::dispatch_bits(size_of(array.dtype), [&]<class Bits>(Bits) {
    const Bits* const bits = array.as<const Bits>();
    parallel_for(n, parallel_grain, [&](std::int64_t begin, std::int64_t end) {
      std::uint64_t sum = 0;
      for (std::int64_t i = begin; i < end; ++i) sum += functional::fingerprint_of(bits[i], i);
      total += sum;
    });
  });
  return total;
}

/// Elements [begin, end) of a pair; A is the type of the average.
template <class A>
void average_elements(const ArrayView& average, const ArrayView& value, A share, std::int64_t begin,
                      std::int64_t end) {
  const auto load = loops().load[static_cast<std::size_t>(value.dtype)];
  const bool direct = value.dtype == average.dtype;
  const auto size = static_cast<std::int64_t>(size_of(value.dtype));
  std::array<A, tile_elements> tile;
  for (std::int64_t first = begin; first < end; first += tile_elements) {
    const std::int64_t n = std::min<std::int64_t>(tile_elements, end - first);
    const void* const from = value.as<char>() + first * size;
    if (!direct) load(tile.data(), from, 1, n);
    const A* const v = direct ? static_cast<const A*>(from) : tile.data();
    A* const a = average.as<A>() + first;
    for (std::int64_t i = 0; i < n; ++i) a[i] += share * (v[i] - a[i]);
  }
}

void scale_all(std::span<const ArrayView> arrays, double factor, StreamRef stream) {
  for (const ArrayView& array : arrays)
    elementwise::unary({.op = UnaryOp::affine,
                        .y = array,
                        .x = array,
                        .constants = {.alpha = factor, .beta = 0.0}},
                       stream);
}

}  // namespace

void multi_tensor::average(const kernels::AverageArguments& a, StreamRef) {
  for (std::size_t i = 0; i < a.averages.size(); ++i) {
    const ArrayView &to = a.averages[i], &from = a.values[i];
    const std::int64_t n = contiguous_count(to);
    const bool in_f64 = from.dtype == DType::f64;
    LOCKSTEP_CHECK(is_floating(from.dtype) && to.dtype == (in_f64 ? DType::f64 : DType::f32) &&
                       n >= 0 && contiguous_count(from) == n,
                   InvalidArgument, "average: ", to.dtype, " of shape ", to.shape, " of ",
                   from.dtype, " of shape ", from.shape,
                   "; both must be contiguous, of one size, and the average wide");
    parallel_for(n, parallel_grain, [&](std::int64_t begin, std::int64_t end) {
      if (in_f64)
        average_elements<double>(to, from, a.share, begin, end);
      else
        average_elements<float>(to, from, static_cast<float>(a.share), begin, end);
    });
  }
}

void multi_tensor::square_sum(const kernels::SquareSumArguments& a, StreamRef) {
  SquareSum total;
  for (const ArrayView& array : a.arrays) total += square_sum_of(array);
  *a.out.as<SquareSum>() = total;
}

void multi_tensor::clip(const kernels::ClipArguments& a, StreamRef stream) {
  const double factor = functional::clip_factor(*a.norm.as<double>(), a.limit);
  if (factor != 1) scale_all(a.arrays, factor, stream);
}

void multi_tensor::fingerprint(const kernels::FingerprintArguments& a, StreamRef) {
  std::uint64_t* out = a.out.as<std::uint64_t>();
  for (const ArrayView& array : a.arrays) *out++ += fingerprint_of(array);
}

void multi_tensor::divide(const kernels::DivideArguments& a, StreamRef stream) {
  const double divisor = *a.divisor.as<double>();
  if (divisor != 1) scale_all(a.arrays, 1 / divisor, stream);
  square_sum({.out = a.square_sum, .arrays = a.arrays}, stream);
}

void multi_tensor::gradient_scaling(const kernels::GradientScalingArguments& a, StreamRef) {
  const auto measured = functional::measure_gradients(
      *a.square_sum.as<SquareSum>(), a.loss_scale ? *a.loss_scale.as<double>() : 1.0, a.limit);
  *a.norm.as<double>() = measured.norm;
  *a.divisor.as<double>() = measured.divisor;
  *a.found_inf.as<double>() = measured.found_inf;
}

void multi_tensor::update_loss_scale(const kernels::LossScaleArguments& a, StreamRef) {
  double& scale = *a.scale.as<double>();
  std::int64_t& finite_steps = *a.finite_steps.as<std::int64_t>();
  std::int64_t& skipped_steps = *a.skipped_steps.as<std::int64_t>();
  const LossScale next = functional::next_loss_scale(a.rule, {scale, finite_steps, skipped_steps},
                                                     *a.found_inf.as<double>() != 0);
  scale = next.value;
  finite_steps = next.finite_steps;
  skipped_steps = next.skipped_steps;
}

}  // namespace lockstep::cpu_kernels
