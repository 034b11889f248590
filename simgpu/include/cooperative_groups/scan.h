#pragma once

#include "cooperative_groups/reduce.h"

/// @file
/// Stands in for the toolkit's header of the same name: running sums over the threads of a tile.

namespace cooperative_groups {

template <unsigned Size, class Parent, class T, class Operation = plus<T>>
T inclusive_scan(const thread_block_tile<Size, Parent>& tile, T value, Operation operation = {}) {
  for (unsigned distance = 1; distance < Size; distance *= 2) {
    const T before = tile.shfl_up(value, distance);
    if (tile.thread_rank() >= distance) value = operation(before, value);
  }
  return value;
}

template <unsigned Size, class Parent, class T, class Operation = plus<T>>
T exclusive_scan(const thread_block_tile<Size, Parent>& tile, T value, Operation operation = {}) {
  const T before = tile.shfl_up(inclusive_scan(tile, value, operation), 1);
  return tile.thread_rank() == 0 ? T() : before;
}

}  // namespace cooperative_groups
