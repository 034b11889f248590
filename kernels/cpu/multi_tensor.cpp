#include "arguments/multi_tensor.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <vector>

#include "arguments/elementwise.hpp"
#include "cpu/array_parts.hpp"
#include "cpu/tiles.hpp"
#include "functional/average.hpp"

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

/// Elements of an array whose squares are added up before those of others.
constexpr std::int64_t chunk = 65536;

std::int64_t chunks_of(const ArrayView& array) {
  return (contiguous_count(array) + chunk - 1) / chunk;
}

/// Sum of squares of chunk `c` of an array.
SquareSum square_sum_of(const ArrayView& array, std::int64_t c) {
  const auto loop = loops().reduce_rows(accumulate_of(array.dtype), ReduceOp::square_sum);
  const auto load = loops().load[static_cast<std::size_t>(array.dtype)];
  const bool direct = is_accumulate_type(array.dtype);
  const auto size = static_cast<std::int64_t>(size_of(array.dtype));
  std::array<float, tile_elements> tile;
  const auto for_each_piece = [&](const auto& visit) {
    const std::int64_t last = std::min(contiguous_count(array), (c + 1) * chunk);
    const std::int64_t step = direct ? chunk : tile_elements;
    for (std::int64_t i = c * chunk; i < last; i += step) {
      const void* from = array.as<char>() + i * size;
      const std::int64_t count = std::min(step, last - i);
      if (!direct) load(tile.data(), from, 1, count);
      visit(direct ? from : tile.data(), count);
    }
  };
  SquareSum sum;
  for_each_piece([&](const void* x, std::int64_t count) { loop(&sum.plain, x, 0, 1, count); });
  if (!functional::is_unbounded(sum.plain)) return sum;
  sum = {};  // so rare that a second look costs nothing
  for_each_piece([&](const void* x, std::int64_t count) {
    add_squares(sum, x, count, array.dtype == DType::f64);
  });
  return functional::square_sum_of_chunk(sum.plain, sum.large);
}

void check_squares(const ArrayView& array) {
  LOCKSTEP_CHECK(contiguous_count(array) >= 0 && is_floating(array.dtype), Unsupported,
                 "square_sum: needs contiguous floating arrays, got ", array.dtype,
                 " with strides ", array.strides);
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
    for (std::int64_t i = 0; i < n; ++i) a[i] = functional::averaged(a[i], v[i], share);
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
    LOCKSTEP_CHECK(is_floating(from.dtype) &&
                       to.dtype == (from.dtype == DType::f64 ? DType::f64 : DType::f32) && n >= 0 &&
                       contiguous_count(from) == n,
                   InvalidArgument, "average: ", to.dtype, " of shape ", to.shape, " of ",
                   from.dtype, " of shape ", from.shape,
                   "; both must be contiguous, of one size, and the average wide");
  }
  parallel_for_arrays(
      a.averages, contiguous_count, parallel_grain,
      [&](const ArrayView& to, std::int64_t begin, std::int64_t end) {
        const ArrayView& from = a.values[static_cast<std::size_t>(&to - a.averages.data())];
        if (from.dtype == DType::f64)
          average_elements<double>(to, from, a.share, begin, end);
        else
          average_elements<float>(to, from, static_cast<float>(a.share), begin, end);
      });
}

void multi_tensor::round(const kernels::RoundArguments& a, StreamRef stream) {
  for (std::size_t i = 0; i < a.outs.size(); ++i) {
    const ArrayView &to = a.outs[i], &from = a.ins[i];
    LOCKSTEP_CHECK((to.dtype == DType::bf16 || to.dtype == DType::f16) &&
                       to.dtype == a.outs[0].dtype && from.dtype == DType::f32 &&
                       contiguous_count(to) >= 0 && contiguous_count(from) == contiguous_count(to),
                   InvalidArgument, "round: ", from.dtype, " of shape ", from.shape, " to ",
                   to.dtype, " of shape ", to.shape,
                   "; they must be contiguous, of one size, from f32 to bf16 or f16, the same for "
                   "all");
    elementwise::copy({.out = to, .in = from}, stream);
  }
}

// Chunks are added in their order, and so are arrays, whatever thread looked at them.
void multi_tensor::square_sum(const kernels::SquareSumArguments& a, StreamRef) {
  for (const ArrayView& array : a.arrays) check_squares(array);
  std::vector<SquareSum> partials(static_cast<std::size_t>(total_units(a.arrays, chunks_of)));
  parallel_for(static_cast<std::int64_t>(partials.size()),
               grain_of(total_units(a.arrays, contiguous_count), 1),
               [&](std::int64_t begin, std::int64_t end) {
                 auto next = partials.begin() + begin;
                 visit_parts(a.arrays, chunks_of, begin, end,
                             [&](const ArrayView& array, std::int64_t first, std::int64_t last) {
                               for (std::int64_t c = first; c < last; ++c)
                                 *next++ = square_sum_of(array, c);
                             });
               });
  SquareSum total;
  auto next = partials.begin();
  for (const ArrayView& array : a.arrays) {
    SquareSum sum;
    for (std::int64_t c = 0; c < chunks_of(array); ++c) sum += *next++;
    total += sum;
  }
  *a.out.as<SquareSum>() = total;
}

void multi_tensor::clip(const kernels::ClipArguments& a, StreamRef stream) {
  const double factor = functional::clip_factor(*a.norm.as<double>(), a.limit);
  if (factor != 1) scale_all(a.arrays, factor, stream);
}

void multi_tensor::fingerprint(const kernels::FingerprintArguments& a, StreamRef) {
  for (const ArrayView& array : a.arrays)
    LOCKSTEP_CHECK(contiguous_count(array) >= 0, InvalidArgument,
                   "fingerprint: needs contiguous arrays, got strides ", array.strides);
  std::uint64_t* const out = a.out.as<std::uint64_t>();
  parallel_for_arrays(a.arrays, contiguous_count, parallel_grain,
                      [&](const ArrayView& array, std::int64_t begin, std::int64_t end) {
                        const int log2_bytes = std::countr_zero(size_of(array.dtype));
                        // The sum wraps around: threads may add in any order.
                        std::atomic_ref<std::uint64_t>(out[&array - a.arrays.data()]) +=
                            loops().fingerprint[log2_bytes](array.data, begin, end);
                      });
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
