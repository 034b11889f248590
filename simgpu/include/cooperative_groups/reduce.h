#pragma once

#include "cooperative_groups.h"

/// @file
/// Stands in for the toolkit's header of the same name: what the threads of a tile make of one value
/// of each.

namespace cooperative_groups {

template <class T>
struct plus {
  T operator()(T a, T b) const { return a + b; }
};
template <class T>
struct less {
  T operator()(T a, T b) const { return b < a ? b : a; }
};
template <class T>
struct greater {
  T operator()(T a, T b) const { return a < b ? b : a; }
};
template <class T>
struct bit_and {
  T operator()(T a, T b) const { return a & b; }
};
template <class T>
struct bit_or {
  T operator()(T a, T b) const { return a | b; }
};
template <class T>
struct bit_xor {
  T operator()(T a, T b) const { return a ^ b; }
};

/// The same in all threads, summed as a butterfly.
template <unsigned Size, class Parent, class T, class Operation>
T reduce(const thread_block_tile<Size, Parent>& tile, T value, Operation operation) {
  for (unsigned distance = Size / 2; distance > 0; distance /= 2)
    value = operation(value, tile.shfl_xor(value, distance));
  return value;
}

}  // namespace cooperative_groups
