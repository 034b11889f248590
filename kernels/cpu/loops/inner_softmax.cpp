#include "cpu/loops/fill.hpp"
#include "functional/softmax.hpp"

/// @file
/// Softmax along a dimension that is not the last: neighbours in memory are of different rows, of
/// which each lane of a pack has one.

namespace lockstep::cpu_kernels::LOCKSTEP_ISA {
namespace {

using functional::load;
using functional::Pack;
using functional::SoloGroup;
using functional::splat;
using functional::store;

/// Calls `visit(offset of the rows' first elements, lanes)` for packs of rows of parts [begin,
/// end).
template <class Visit>
LOCKSTEP_ALWAYS_INLINE void for_each_rows(const SoftmaxRows& a, std::int64_t begin,
                                          std::int64_t end, const Visit& visit) {
  const std::int64_t parts = (a.inner + a.part_rows - 1) / a.part_rows;
  for (std::int64_t part = begin; part < end; ++part) {
    const std::int64_t first = part % parts * a.part_rows, left = a.inner - first;
    const std::int64_t at = part / parts * a.columns * a.inner + first;
    functional::for_each_pack(SoloGroup{}, left < a.part_rows ? left : a.part_rows,
                              [&](std::int64_t i, auto lanes) { visit(at + i, lanes); });
  }
}

template <bool log, class T>
void softmax_as(const SoftmaxRows& a, std::int64_t begin, std::int64_t end) {
  using A = AccumulateType<T>;
  constexpr bool keeps = !log && sizeof(T) == sizeof(A);  // exponentials, in y
  const std::int64_t step = a.inner, size = a.columns * a.inner;
  for_each_rows(a, begin, end, [&](std::int64_t at, auto lanes) {
    constexpr int width = lanes.value;
    const T* const x = static_cast<const T*>(a.x) + at;
    T* const y = static_cast<T*>(a.out) + at;
    auto maximum = splat<A, width>(-static_cast<A>(functional::math::detail::infinity));
    for (std::int64_t i = 0; i < size; i += step) {
      const auto value = load<A, width>(x + i);
      for (int j = 0; j < width; ++j) maximum[j] = functional::Larger{}(maximum[j], value[j]);
    }
    auto sum = splat<A, width>(0);
    for (std::int64_t i = 0; i < size; i += step) {
      auto value = load<A, width>(x + i);
      for (int j = 0; j < width; ++j) value[j] = functional::exp_of<T>(value[j] - maximum[j]);
      for (int j = 0; j < width; ++j) sum[j] += value[j];
      if constexpr (keeps) store(y + i, value);
    }
    for (int j = 0; j < width; ++j) sum[j] = log ? functional::math::log(sum[j]) : A(1) / sum[j];
    for (std::int64_t i = 0; i < size; i += step) {
      auto value = load<A, width>(keeps ? y + i : x + i);
      for (int j = 0; j < width; ++j) {
        if constexpr (log)
          value[j] = (value[j] - maximum[j]) - sum[j];
        else if constexpr (keeps)
          value[j] *= sum[j];
        else
          value[j] = functional::exp_of<T>(value[j] - maximum[j]) * sum[j];
      }
      store(y + i, value);
    }
  });
}

template <bool log, class T>
void softmax_backward_as(const SoftmaxRows& a, std::int64_t begin, std::int64_t end) {
  using A = AccumulateType<T>;
  const std::int64_t step = a.inner, size = a.columns * a.inner;
  for_each_rows(a, begin, end, [&](std::int64_t at, auto lanes) {
    constexpr int width = lanes.value;
    const T* const dy = static_cast<const T*>(a.dy) + at;
    const T* const y = static_cast<const T*>(a.y) + at;
    T* const dx = static_cast<T*>(a.out) + at;
    auto total = splat<A, width>(0);
    for (std::int64_t i = 0; i < size; i += step) {
      auto value = load<A, width>(dy + i);
      if constexpr (!log) {
        const auto result = load<A, width>(y + i);
        for (int j = 0; j < width; ++j) value[j] *= result[j];
      }
      for (int j = 0; j < width; ++j) total[j] += value[j];
    }
    for (std::int64_t i = 0; i < size; i += step) {
      auto value = load<A, width>(dy + i);
      const auto result = load<A, width>(y + i);
      for (int j = 0; j < width; ++j)
        value[j] = log ? value[j] - functional::exp_of<T>(result[j]) * total[j]
                       : result[j] * (value[j] - total[j]);
      store(dx + i, value);
    }
  });
}

template <class T>
void add_dtype(RowLoops& loops) {
  constexpr auto dtype = static_cast<std::size_t>(dtype_of<T>);
  loops.inner_softmax[dtype] = [](const SoftmaxRows& a, std::int64_t begin, std::int64_t end) {
    a.log ? softmax_as<true, T>(a, begin, end) : softmax_as<false, T>(a, begin, end);
  };
  loops.inner_softmax_backward[dtype] = [](const SoftmaxRows& a, std::int64_t begin,
                                           std::int64_t end) {
    a.log ? softmax_backward_as<true, T>(a, begin, end)
          : softmax_backward_as<false, T>(a, begin, end);
  };
}

}  // namespace

void fill_inner_softmax(RowLoops& loops) {
  add_dtype<double>(loops);
  add_dtype<float>(loops);
  add_dtype<BFloat16>(loops);
  add_dtype<Half>(loops);
}

}  // namespace lockstep::cpu_kernels::LOCKSTEP_ISA
