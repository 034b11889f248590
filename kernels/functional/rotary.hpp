#pragma once

#include "functional/group.hpp"

/// @file
/// Rotary position embedding (Su et al. 2021) of one pair of features, and of the pairs of a row.

namespace lockstep::functional::inline LOCKSTEP_ISA {

/// A point of the plane.
template <class A>
struct Point {
  A x, y;
};

/// The point turned about the origin by an angle.
template <class A>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE Point<A> turned(const Point<A>& point, A cos, A sin) {
  return {point.x * cos - point.y * sin, point.y * cos + point.x * sin};
}

/// Turns pair i of a row, its elements i and i + pairs, by angle i, or back where `direction` is
/// -1 instead of 1. y may be x.
template <class A, class Group, class T>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE void rotary_row(const Group& group, T* y, const T* x,
                                                   const A* cos, const A* sin, std::int64_t pairs,
                                                   A direction) {
  for_each_pack(group, pairs, [&](std::int64_t i, auto lanes) {
    auto first = load<A, lanes.value>(x + i), second = load<A, lanes.value>(x + pairs + i);
    const auto c = load<A, lanes.value>(cos + i), s = load<A, lanes.value>(sin + i);
    for (int j = 0; j < lanes.value; ++j) {
      const Point<A> point = turned<A>({first[j], second[j]}, c[j], direction * s[j]);
      first[j] = point.x;
      second[j] = point.y;
    }
    store(y + i, first);
    store(y + pairs + i, second);
  });
}

}  // namespace lockstep::functional::inline LOCKSTEP_ISA
