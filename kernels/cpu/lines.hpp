#pragma once

#include <algorithm>
#include <initializer_list>

#include "cpu/loop_nest.hpp"
#include "cpu/tiles.hpp"
#include "lockstep/core/parallel.hpp"

/// @file
/// What kernels along one dimension share.

namespace lockstep::cpu_kernels {

/// A value of T in its accumulation type.
template <class T>
AccumulateType<T> widen(T value) {
  return static_cast<AccumulateType<T>>(value);
}

/// Calls `visit(offsets)` for every line along `dim` of operands that agree in all other extents
/// of `shape`, in parallel; `offsets` are those of each operand's first element of the line.
template <class Visitor>
void for_each_line(Shape shape, int dim, std::initializer_list<const Strides*> strides,
                   Visitor visit) {
  const std::int64_t length = std::max<std::int64_t>(1, shape[dim]);
  shape[dim] = 1;
  const LoopNest nest = make_loop_nest(shape, strides, false);
  const std::int64_t grain = std::max<std::int64_t>(1, parallel_grain / length);
  parallel_for(nest.total, grain, [&](std::int64_t begin, std::int64_t end) {
    Cursor cursor;
    cursor.seek(nest, begin);
    for (std::int64_t i = begin; i < end; ++i) {
      visit(cursor.offset);
      cursor.advance(nest, 1);
    }
  });
}

}  // namespace lockstep::cpu_kernels
