#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "cpu/tiles.hpp"
#include "lockstep/core/parallel.hpp"

/// @file
/// Several arrays that threads share as if they were one: many small ones cost one parallel region,
/// and each thread has an equal part of all.

namespace lockstep::cpu_kernels {

/// The units of all arrays together. @param units_of how many an array has
template <class Arrays, class Units>
std::int64_t total_units(const Arrays& arrays, const Units& units_of) {
  std::int64_t total = 0;
  for (const auto& array : arrays) total += units_of(array);
  return total;
}

/// The grain of units for `parallel_for`: with fewer elements than two threads are worth, all.
inline std::int64_t grain_of(std::int64_t elements, std::int64_t units) {
  return elements < 2 * parallel_grain ? std::numeric_limits<std::int64_t>::max() : units;
}

/// Calls `visit(array, begin, end)` for the parts of arrays that lie in [begin, end) of all units.
template <class Arrays, class Units, class Visit>
void visit_parts(const Arrays& arrays, const Units& units_of, std::int64_t begin, std::int64_t end,
                 const Visit& visit) {
  std::int64_t start = 0;  // of the array, among all units
  for (const auto& array : arrays) {
    const std::int64_t stop = start + units_of(array);
    const std::int64_t first = std::max(begin, start), last = std::min(end, stop);
    if (first < last) visit(array, first - start, last - start);
    start = stop;
  }
}

/// The same for all units of all arrays, by as many threads as there are parts of `grain` units.
template <class Arrays, class Units, class Visit>
void parallel_for_arrays(const Arrays& arrays, const Units& units_of, std::int64_t grain,
                         const Visit& visit) {
  parallel_for(total_units(arrays, units_of), grain, [&](std::int64_t begin, std::int64_t end) {
    visit_parts(arrays, units_of, begin, end, visit);
  });
}

}  // namespace lockstep::cpu_kernels
