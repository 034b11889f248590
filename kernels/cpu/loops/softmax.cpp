#include <type_traits>

#include "cpu/loops/fill.hpp"
#include "functional/cross_entropy.hpp"

namespace lockstep::cpu_kernels::LOCKSTEP_ISA {
namespace {

using functional::SoloGroup;

/// Whether rows of so many columns are taken together, many at a time: where they fill no vector,
/// and in f32, whose conversions cost nothing, while they are short.
template <class T>
bool is_short(std::int64_t columns) {
  constexpr std::int64_t least_long = std::is_same_v<T, float> ? 64 : SoloGroup::width;
  return columns > 0 && columns < least_long;
}

/// As softmax_row, with exponentials kept where they were taken: in the row itself, or in `kept`
/// where its dtype would round them.
template <class T, class A>
LOCKSTEP_ALWAYS_INLINE void softmax_row_once(T* y, const T* x, A* kept, std::int64_t n) {
  using functional::load;
  const A lowest = -static_cast<A>(functional::math::detail::infinity);
  const A maximum = functional::reduce_packs(
      SoloGroup{}, n, lowest, functional::Larger{},
      [&](std::int64_t i, auto lanes) { return load<A, lanes.value>(x + i); });
  const A sum = functional::reduce_packs(SoloGroup{}, n, A(0), functional::Plus{},
                                         [&](std::int64_t i, auto lanes) {
                                           auto value = load<A, lanes.value>(x + i);
                                           for (int j = 0; j < lanes.value; ++j)
                                             value[j] = functional::math::exp(value[j] - maximum);
                                           functional::store(kept + i, value);
                                           return value;
                                         });
  const A scale = A(1) / sum;
  functional::for_each_pack(SoloGroup{}, n, [&](std::int64_t i, auto lanes) {
    auto value = load<A, lanes.value>(kept + i);
    for (int j = 0; j < lanes.value; ++j) value[j] *= scale;
    functional::store(y + i, value);
  });
}

/// Many rows of a few columns at a time: exponentials and logarithms fill whole vectors.
template <class T>
void short_softmax(const SoftmaxRows& a, std::int64_t begin, std::int64_t end) {
  using A = AccumulateType<T>;
  constexpr std::int64_t elements = 512;
  alignas(64) A shifted[elements], exponentials[elements], sums[elements];
  const std::int64_t n = a.columns, step = elements / n;
  for (; begin < end; begin += step) {
    const std::int64_t rows = end - begin < step ? end - begin : step;
    const T* const x = static_cast<const T*>(a.x) + begin * n;
    T* const y = static_cast<T*>(a.out) + begin * n;
    for (std::int64_t r = 0; r < rows; ++r) {
      A largest = -static_cast<A>(functional::math::detail::infinity);
      for (std::int64_t i = 0; i < n; ++i)
        largest = functional::Larger{}(largest, static_cast<A>(x[r * n + i]));
      for (std::int64_t i = 0; i < n; ++i)
        shifted[r * n + i] = static_cast<A>(x[r * n + i]) - largest;
    }
    for (std::int64_t i = 0; i < rows * n; ++i) exponentials[i] = functional::math::exp(shifted[i]);
    for (std::int64_t r = 0; r < rows; ++r) {
      sums[r] = 0;
      for (std::int64_t i = 0; i < n; ++i) sums[r] += exponentials[r * n + i];
    }
    for (std::int64_t r = 0; r < rows; ++r)
      sums[r] = a.log ? functional::math::log(sums[r]) : A(1) / sums[r];
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t i = r * n; i < (r + 1) * n; ++i)
        y[i] = static_cast<T>(a.log ? shifted[i] - sums[r] : exponentials[i] * sums[r]);
  }
}

template <class T>
void softmax(const SoftmaxRows& a, std::int64_t begin, std::int64_t end) {
  if constexpr (std::is_same_v<T, float>)
    if (is_short<T>(a.columns) && a.columns < 48) return short_softmax<T>(a, begin, end);
  using A = AccumulateType<T>;
  constexpr bool rounds = sizeof(T) < sizeof(A);
  constexpr std::int64_t most_kept = rounds ? 4096 : 1;
  alignas(64) A kept[most_kept];
  for (std::int64_t at = begin * a.columns; at < end * a.columns; at += a.columns) {
    T* const y = static_cast<T*>(a.out) + at;
    const T* const x = static_cast<const T*>(a.x) + at;
    if (a.log)
      functional::softmax_row<true, A>(SoloGroup{}, y, x, a.columns);
    else if constexpr (!rounds)
      softmax_row_once(y, x, y, a.columns);
    else if (a.columns <= most_kept)
      softmax_row_once(y, x, kept, a.columns);
    else
      functional::softmax_row<false, A>(SoloGroup{}, y, x, a.columns);
  }
}

/// Many rows of a few columns at a time.
template <class T>
void short_softmax_backward(const SoftmaxRows& a, std::int64_t begin, std::int64_t end) {
  using A = AccumulateType<T>;
  constexpr std::int64_t elements = 512;
  alignas(64) A result[elements], gradient[elements];
  const std::int64_t n = a.columns, step = elements / n;
  for (; begin < end; begin += step) {
    const std::int64_t rows = end - begin < step ? end - begin : step;
    const T* const dy = static_cast<const T*>(a.dy) + begin * n;
    const T* const y = static_cast<const T*>(a.y) + begin * n;
    T* const dx = static_cast<T*>(a.out) + begin * n;
    for (std::int64_t i = 0; i < rows * n; ++i) {
      gradient[i] = static_cast<A>(dy[i]);
      result[i] = a.log ? functional::math::exp(static_cast<A>(y[i])) : static_cast<A>(y[i]);
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      const A *const g = gradient + r * n, *const result_of_row = result + r * n;
      A total = 0;
      if (a.log)
        for (std::int64_t i = 0; i < n; ++i) total += g[i];
      else
        for (std::int64_t i = 0; i < n; ++i) total += g[i] * result_of_row[i];
      for (std::int64_t i = 0; i < n; ++i)
        dx[r * n + i] = static_cast<T>(a.log ? g[i] - result_of_row[i] * total
                                             : result_of_row[i] * (g[i] - total));
    }
  }
}

template <class T>
void softmax_backward(const SoftmaxRows& a, std::int64_t begin, std::int64_t end) {
  if constexpr (std::is_same_v<T, float>)  // of plain softmax, which takes no exponentials, few
    if (is_short<T>(a.columns) && (a.log || a.columns <= 16))
      return short_softmax_backward<T>(a, begin, end);
  using A = AccumulateType<T>;
  for (std::int64_t at = begin * a.columns; at < end * a.columns; at += a.columns) {
    T* const dx = static_cast<T*>(a.out) + at;
    const T* const dy = static_cast<const T*>(a.dy) + at;
    const T* const y = static_cast<const T*>(a.y) + at;
    if (a.log)
      functional::softmax_backward_row<true, A>(SoloGroup{}, dx, dy, y, a.columns);
    else
      functional::softmax_backward_row<false, A>(SoloGroup{}, dx, dy, y, a.columns);
  }
}

template <class T>
auto row_of(const CrossEntropyRows& a, std::int64_t row) {
  using A = AccumulateType<T>;
  return functional::CrossEntropyRow<A, T>{
      .logits = static_cast<const T*>(a.logits) + row * a.pitch,
      .weight = static_cast<const A*>(a.weight),
      .classes = a.classes,
      .target = a.targets[row],
      .ignored = a.targets[row] == a.ignore_index,
      .smoothing = static_cast<A>(a.smoothing)};
}

/// Takes the exponentials of short rows [begin, end), many rows at a time.
/// Calls `visit(row, largest, exponentials)`, where those are of the logits less `largest =
/// maximum(row)`.
template <class T, class Maximum, class Visit>
void for_each_short_row(const CrossEntropyRows& a, std::int64_t begin, std::int64_t end,
                        const Maximum& maximum, const Visit& visit) {
  using A = AccumulateType<T>;
  constexpr std::int64_t elements = 512;
  alignas(64) A exponentials[elements];
  A largest[elements];
  const std::int64_t n = a.classes, step = elements / n;
  for (; begin < end; begin += step) {
    const std::int64_t rows = end - begin < step ? end - begin : step;
    for (std::int64_t r = 0; r < rows; ++r) {
      const T* const x = static_cast<const T*>(a.logits) + (begin + r) * a.pitch;
      largest[r] = maximum(begin + r);
      for (std::int64_t i = 0; i < n; ++i)
        exponentials[r * n + i] = static_cast<A>(x[i]) - largest[r];
    }
    for (std::int64_t i = 0; i < rows * n; ++i)
      exponentials[i] = functional::math::exp(exponentials[i]);
    for (std::int64_t r = 0; r < rows; ++r) visit(begin + r, largest[r], exponentials + r * n);
  }
}

template <class A>
void keep(const CrossEntropyRows& a, std::int64_t row,
          const functional::CrossEntropyResult<A>& result) {
  static_cast<A*>(a.loss)[row] = result.loss;
  static_cast<A*>(a.statistics)[2 * row] = result.maximum;
  static_cast<A*>(a.statistics)[2 * row + 1] = result.sum;
  static_cast<A*>(a.row_weight)[row] = result.row_weight;
}

template <class T>
void short_cross_entropy(const CrossEntropyRows& a, std::int64_t begin, std::int64_t end) {
  using A = AccumulateType<T>;
  const auto maximum = [&](std::int64_t row) {
    const T* const x = static_cast<const T*>(a.logits) + row * a.pitch;
    A largest = -static_cast<A>(functional::math::detail::infinity);
    for (std::int64_t i = 0; i < a.classes; ++i)
      largest = functional::Larger{}(largest, static_cast<A>(x[i]));
    return largest;
  };
  for_each_short_row<T>(
      a, begin, end, maximum, [&](std::int64_t row, A largest, const A* exponentials) {
        A sum = 0;
        for (std::int64_t i = 0; i < a.classes; ++i) sum += exponentials[i];
        keep<A>(a, row,
                functional::cross_entropy_row<A>(SoloGroup{}, row_of<T>(a, row),
                                                 functional::SoftmaxStatistics<A>{largest, sum}));
      });
}

template <class T>
void cross_entropy(const CrossEntropyRows& a, std::int64_t begin, std::int64_t end) {
  if (is_short<T>(a.classes)) return short_cross_entropy<T>(a, begin, end);
  using A = AccumulateType<T>;
  for (std::int64_t row = begin; row < end; ++row)
    keep<A>(a, row, functional::cross_entropy_row<A>(SoloGroup{}, row_of<T>(a, row)));
}

template <class T>
void cross_entropy_backward(const CrossEntropyRows& a, std::int64_t begin, std::int64_t end) {
  using A = AccumulateType<T>;
  const A* const kept = static_cast<const A*>(a.statistics);
  const auto backward_row = [&](std::int64_t row, const auto&... exponentials) {
    functional::cross_entropy_backward_row<A>(
        SoloGroup{}, static_cast<T*>(a.dlogits) + row * a.pitch,
        static_cast<const A*>(a.dloss)[row * a.dloss_stride],
        functional::SoftmaxStatistics<A>{kept[2 * row], kept[2 * row + 1]}, row_of<T>(a, row),
        exponentials...);
  };
  if (!is_short<T>(a.classes)) {
    for (std::int64_t row = begin; row < end; ++row) backward_row(row);
    return;
  }
  for_each_short_row<T>(
      a, begin, end, [&](std::int64_t row) { return kept[2 * row]; },
      [&](std::int64_t row, A, const A* exponentials) {
        backward_row(row, [&](std::int64_t i, auto lanes) {
          return functional::load<A, lanes.value>(exponentials + i);
        });
      });
}

template <class T>
void cross_entropy_gradient(const CrossEntropyRows& a, std::int64_t begin, std::int64_t end) {
  using A = AccumulateType<T>;
  for (std::int64_t row = begin; row < end; ++row) {
    const auto logits = row_of<T>(a, row);
    const auto result = functional::cross_entropy_gradient_row<A>(
        SoloGroup{}, static_cast<T*>(a.dlogits) + row * a.pitch, a.padding,
        a.dloss ? static_cast<const A*>(a.dloss)[row * a.dloss_stride] : A(1),
        functional::softmax_statistics<A>(SoloGroup{}, logits.logits, a.classes), logits);
    static_cast<A*>(a.loss)[row] = result.loss;
    static_cast<A*>(a.row_weight)[row] = result.row_weight;
  }
}

template <class T>
void add_dtype(RowLoops& loops) {
  constexpr auto dtype = static_cast<std::size_t>(dtype_of<T>);
  loops.softmax[dtype] = softmax<T>;
  loops.softmax_backward[dtype] = softmax_backward<T>;
  loops.cross_entropy[dtype] = cross_entropy<T>;
  loops.cross_entropy_backward[dtype] = cross_entropy_backward<T>;
  loops.cross_entropy_gradient[dtype] = cross_entropy_gradient<T>;
}

}  // namespace

void fill_softmax(RowLoops& loops) {
  add_dtype<double>(loops);
  add_dtype<float>(loops);
  add_dtype<BFloat16>(loops);
  add_dtype<Half>(loops);
}

}  // namespace lockstep::cpu_kernels::LOCKSTEP_ISA
