#include "functional/pooling.hpp"

#include "cpu/loops/fill.hpp"
#include "functional/group.hpp"

namespace lockstep::cpu_kernels::LOCKSTEP_ISA {
namespace {

using functional::for_each_pack;
using functional::load;
using functional::Pack;
using functional::SoloGroup;
using functional::splat;
using functional::store;

/// Calls `visit(row, column)` for all positions of the cell's rectangle.
template <class Visit>
LOCKSTEP_ALWAYS_INLINE void for_each_position(const PoolCell& cell, Visit&& visit) {
  for (std::int64_t i = cell.row_begin; i < cell.row_end; ++i)
    for (std::int64_t j = cell.column_begin; j < cell.column_end; ++j) visit(i, j);
}

template <class T>
const T* input(const PoolCell& cell, std::int64_t row, std::int64_t column) {
  return static_cast<const T*>(cell.in) + row * cell.row_stride + column * cell.column_stride;
}

/// Positions as whole numbers as wide as the values beside them, so that they share masks.
template <class A>
using Position = std::conditional_t<sizeof(A) == 8, std::int64_t, std::int32_t>;

template <class T>
void max(const PoolCell& cell) {
  using A = AccumulateType<T>;
  using Largest = functional::PoolMaximum<A, Position<A>>;
  for_each_pack(SoloGroup{}, cell.channels, [&](std::int64_t c, auto lanes) {
    constexpr int width = lanes.value;
    auto value = splat<A, width>(Largest{}.value);
    auto index = splat<Position<A>, width>(Largest{}.index);
    for_each_position(cell, [&](std::int64_t h, std::int64_t w) {
      const auto x = load<A, width>(input<T>(cell, h, w) + c);
      const auto at = static_cast<Position<A>>(h * cell.width + w);
      for (int k = 0; k < width; ++k) {
        Largest largest{value[k], index[k]};
        largest.take(x[k], at);
        value[k] = largest.value;
        index[k] = largest.index;
      }
    });
    store(static_cast<T*>(cell.out) + c, value);
    store(cell.index + c, index);
  });
}

template <class T>
void max_backward(const PoolCell& cell) {
  using A = AccumulateType<T>;
  const auto position = static_cast<Position<A>>(cell.position);
  for_each_pack(SoloGroup{}, cell.channels, [&](std::int64_t c, auto lanes) {
    constexpr int width = lanes.value;
    auto sum = splat<A, width>(0);
    for_each_position(cell, [&](std::int64_t i, std::int64_t j) {
      const auto dy = load<A, width>(input<T>(cell, i, j) + c);
      const auto index = load<Position<A>, width>(cell.in_index + i * cell.index_row_stride +
                                                  j * cell.index_column_stride + c);
      for (int k = 0; k < width; ++k) sum[k] += index[k] == position ? dy[k] : A(0);
    });
    store(static_cast<T*>(cell.out) + c, sum);
  });
}

template <class T>
void mean(const PoolCell& cell) {
  using A = AccumulateType<T>;
  const auto divisor =
      static_cast<double>(functional::pool_divisor(*cell.row_extent, *cell.column_extent));
  for_each_pack(SoloGroup{}, cell.channels, [&](std::int64_t c, auto lanes) {
    constexpr int width = lanes.value;
    // In double: a compensated f32 sum, as the GPU's, costs up to four times as much here.
    auto sum = splat<double, width>(0);
    for_each_position(cell, [&](std::int64_t h, std::int64_t w) {
      const auto x = load<A, width>(input<T>(cell, h, w) + c);
      for (int k = 0; k < width; ++k) sum[k] += static_cast<double>(x[k]);
    });
    Pack<A, width> result;
    for (int k = 0; k < width; ++k) result[k] = static_cast<A>(sum[k] / divisor);
    store(static_cast<T*>(cell.out) + c, result);
  });
}

template <class T>
void mean_backward(const PoolCell& cell) {
  using A = AccumulateType<T>;
  for_each_pack(SoloGroup{}, cell.channels, [&](std::int64_t c, auto lanes) {
    constexpr int width = lanes.value;
    auto sum = splat<A, width>(0);
    for_each_position(cell, [&](std::int64_t i, std::int64_t j) {
      const auto dy = load<A, width>(input<T>(cell, i, j) + c);
      const auto divisor =
          static_cast<A>(functional::pool_divisor(cell.row_extent[i], cell.column_extent[j]));
      for (int k = 0; k < width; ++k) sum[k] += dy[k] / divisor;
    });
    store(static_cast<T*>(cell.out) + c, sum);
  });
}

/// Blocks are summed in the accumulation type, and their sums in double.
template <class T>
void plane_means(void* out, const void* in, std::int64_t planes, std::int64_t positions) {
  using A = AccumulateType<T>;
  constexpr std::int64_t block = 4096;
  const T* x = static_cast<const T*>(in);
  for (std::int64_t plane = 0; plane < planes; ++plane, x += positions) {
    double sum = 0;
    for (std::int64_t i = 0; i < positions; i += block)
      sum += static_cast<double>(functional::reduce_packs(
          SoloGroup{}, positions - i < block ? positions - i : block, A(0), functional::Plus{},
          [&](std::int64_t j, auto lanes) { return load<A, lanes.value>(x + i + j); }));
    static_cast<T*>(out)[plane] = T(static_cast<A>(sum / static_cast<double>(positions)));
  }
}

template <class T>
void add_dtype(Loops& loops) {
  loops.pool[static_cast<std::size_t>(dtype_of<T>)] = {.plane_means = plane_means<T>,
                                                       .max = max<T>,
                                                       .max_backward = max_backward<T>,
                                                       .mean = mean<T>,
                                                       .mean_backward = mean_backward<T>};
}

}  // namespace

void fill_pooling(Loops& loops) {
  add_dtype<double>(loops);
  add_dtype<float>(loops);
  add_dtype<BFloat16>(loops);
  add_dtype<Half>(loops);
}

}  // namespace lockstep::cpu_kernels::LOCKSTEP_ISA
