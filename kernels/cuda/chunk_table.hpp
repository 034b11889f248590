#pragma once

#include <cstdint>

#include "lockstep/core/array_view.hpp"

/// @file
/// Lists of arrays as kernel arguments: no copy to the device, nothing to keep alive.

namespace lockstep::cuda_kernels {

/// Elements that a block works on.
inline constexpr std::int64_t chunk_elements = 32768;

/// Bytes of a kernel's arguments, from CUDA 12.1 and Volta on, and of those beside a table.
inline constexpr std::size_t most_argument_bytes = 32764, other_argument_bytes = 256;

/// What the blocks of a launch work on: tensors of `Arrays` arrays each, cut into chunks. A block
/// finds its tensor by its number.
template <int Arrays>
struct ChunkTable {
  static constexpr int most_tensors =
      (most_argument_bytes - other_argument_bytes - 16) / (Arrays * sizeof(void*) + 12);
  void* array[Arrays][most_tensors];
  std::int64_t count[most_tensors];  // elements
  std::uint32_t first_block[most_tensors + 1];
  std::int32_t tensors;
  std::int32_t first_tensor;  // in the list

  LOCKSTEP_HD int tensor_of(unsigned block) const {
    int low = 0, high = tensors;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (first_block[middle] <= block)
        low = middle;
      else
        high = middle;
    }
    return low;
  }
  LOCKSTEP_HD unsigned chunks_of(int tensor) const {
    return first_block[tensor + 1] - first_block[tensor];
  }
  /// The elements [first, last) of a block's chunk.
  LOCKSTEP_HD std::int64_t first(int tensor, unsigned block) const {
    return std::int64_t{block - first_block[tensor]} * chunk_elements;
  }
  LOCKSTEP_HD std::int64_t last(int tensor, unsigned block) const {
    const std::int64_t end = first(tensor, block) + chunk_elements;
    return end < count[tensor] ? end : count[tensor];
  }
};

/// An empty tensor has a chunk too, so that every tensor has a block.
inline std::int64_t chunks_of(std::int64_t elements) {
  return elements == 0 ? 1 : (elements + chunk_elements - 1) / chunk_elements;
}

/// Fills tables and calls `launch_table(table, blocks)` for each full one and for the rest.
/// @param arrays `arrays(i, k)` is the k-th array of the i-th tensor, as a pointer.
/// @param count `count(i)` is the number of elements of the i-th tensor.
template <int K, class Arrays, class Count, class Launch>
void for_each_table(std::size_t tensors, const Arrays& arrays, const Count& count,
                    const Launch& launch_table) {
  using Table = ChunkTable<K>;
  static_assert(sizeof(Table) + other_argument_bytes <= most_argument_bytes);
  for (std::size_t first = 0; first < tensors; first += Table::most_tensors) {
    Table table{};
    table.first_tensor = static_cast<std::int32_t>(first);
    for (std::size_t i = first; i < tensors && table.tensors < Table::most_tensors; ++i) {
      const int at = table.tensors++;
      for (int k = 0; k < K; ++k) table.array[k][at] = arrays(i, k);
      table.count[at] = count(i);
      table.first_block[at + 1] =
          table.first_block[at] + static_cast<std::uint32_t>(chunks_of(count(i)));
    }
    launch_table(table, table.first_block[table.tensors]);
  }
}

}  // namespace lockstep::cuda_kernels
