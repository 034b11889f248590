#pragma once

#include <cstdint>

#include "functional/namespace.hpp"
#include "lockstep/core/macros.hpp"

/// @file
/// Resizing of images along one dimension, nearest or linear.

namespace lockstep {

/// How positions of the result map to positions of the input.
struct InterpolationAxis {
  std::int64_t in = 1, out = 1;
  double step = 0.0;           ///< input positions from one output to the next; 0: in / out
  bool linear = false;         ///< else nearest
  bool align_corners = false;  ///< linear: the first and last positions fall on each other
};

namespace functional::inline LOCKSTEP_ISA {

/// What one position of the result is made of: (1 - share) x[low] + share x[high].
struct Taps {
  std::int64_t low, high;
  double share;
};

/// The taps of output position i. Neither end decreases from one position to the next.
LOCKSTEP_HD inline Taps taps_of(const InterpolationAxis& axis, std::int64_t i) {
  const std::int64_t last = axis.in - 1;
  if (!axis.linear) {
    const std::int64_t at = axis.step > 0
                                ? static_cast<std::int64_t>(static_cast<double>(i) * axis.step)
                                : i * axis.in / axis.out;
    return at < last ? Taps{at, at, 0} : Taps{last, last, 0};
  }
  double at = 0;
  if (!axis.align_corners) {
    const double step =
        axis.step > 0 ? axis.step : static_cast<double>(axis.in) / static_cast<double>(axis.out);
    at = (static_cast<double>(i) + 0.5) * step - 0.5;
    if (at < 0) at = 0;
  } else if (axis.out > 1) {
    at = static_cast<double>(i) * static_cast<double>(last) / static_cast<double>(axis.out - 1);
  }
  const auto low = static_cast<std::int64_t>(at);
  if (low >= last) return {last, last, 0};
  return {low, low + 1, at - static_cast<double>(low)};
}

/// Output positions [begin, end) that may take from one input position.
struct Takers {
  std::int64_t begin, end;
};

/// The first output position of which `reached(taps)` holds, where it holds for all after it.
template <class Reached>
LOCKSTEP_HD inline std::int64_t first_output(const InterpolationAxis& axis, Reached reached) {
  std::int64_t low = 0, high = axis.out;
  while (low < high) {
    const std::int64_t middle = (low + high) / 2;
    if (reached(taps_of(axis, middle)))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/// The takers of input position `at`.
LOCKSTEP_HD inline Takers takers_of(const InterpolationAxis& axis, std::int64_t at) {
  return {first_output(axis, [at](const Taps& taps) { return taps.high >= at; }),
          first_output(axis, [at](const Taps& taps) { return taps.low > at; })};
}

/// The factor with which input position `at` enters an output position.
LOCKSTEP_HD inline double share_of(const Taps& taps, std::int64_t at) {
  if (taps.low == at) return 1 - taps.share;
  return taps.high == at ? taps.share : 0;
}

/// (1 - share) a + share b; a itself, infinite or not, where b has no share.
template <class A>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE A mix(A a, A b, double share) {
  return share == 0 ? a : static_cast<A>(1 - share) * a + static_cast<A>(share) * b;
}

/// One element of the result; `read(h, w)` gives those of the input.
template <class A, class Read>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE A interpolated(const Taps& row, const Taps& column,
                                                  const Read& read) {
  const A top = mix<A>(read(row.low, column.low), read(row.low, column.high), column.share);
  if (row.share == 0) return top;
  const A bottom = mix<A>(read(row.high, column.low), read(row.high, column.high), column.share);
  return mix<A>(top, bottom, row.share);
}

/// The gradient of one element (h, w) of the input. `row_taps(i)` and `column_taps(j)` are those of
/// output positions, `read(i, j)` gives the result's gradient.
template <class A, class RowTaps, class ColumnTaps, class Read>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE A
interpolated_gradient(std::int64_t h, std::int64_t w, const Takers& rows, const Takers& columns,
                      const RowTaps& row_taps, const ColumnTaps& column_taps, const Read& read) {
  A sum = 0;
  for (std::int64_t i = rows.begin; i < rows.end; ++i) {
    const double row_share = share_of(row_taps(i), h);
    if (row_share == 0) continue;
    for (std::int64_t j = columns.begin; j < columns.end; ++j) {
      const double share = row_share * share_of(column_taps(j), w);
      if (share != 0) sum += static_cast<A>(share) * read(i, j);
    }
  }
  return sum;
}

}  // namespace functional::inline LOCKSTEP_ISA
}  // namespace lockstep
