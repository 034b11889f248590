#pragma once

#include <cstdint>

#include "lockstep/core/array_view.hpp"

/// @file
/// Lists of arrays as kernel arguments: no copy to the device, nothing to keep alive.

namespace lockstep::cuda_kernels {

/// Elements that a block works on.
inline constexpr std::int64_t chunk_elements = 32768;

/// Which chunk of which tensor each block of a launch takes. Kernel arguments end at 4 KiB.
template <int Arrays>
struct ChunkTable {
  static constexpr int most_tensors = 36;
  static constexpr int most_chunks = 320;
  void* array[Arrays][most_tensors];
  std::int64_t count[most_tensors];
  std::int32_t index[most_tensors];  // in the list
  std::int32_t chunk[most_chunks];
  std::uint8_t tensor[most_chunks];

  /// The elements [first, last) of a block's chunk.
  LOCKSTEP_HD std::int64_t first(unsigned block) const {
    return std::int64_t{chunk[block]} * chunk_elements;
  }
  LOCKSTEP_HD std::int64_t last(unsigned block) const {
    const std::int64_t end = first(block) + chunk_elements;
    const std::int64_t all = count[tensor[block]];
    return end < all ? end : all;
  }
};

inline std::int64_t chunks_of(std::int64_t elements) {
  return (elements + chunk_elements - 1) / chunk_elements;
}

/// Fills tables and calls `launch_table(table, blocks)` for each full one and for the rest.
/// @param lists K arrays for each tensor: `lists(i, k)` is the k-th of the i-th.
template <int K, class Lists, class Launch>
void for_each_table(std::size_t tensors, const Lists& lists, const Launch& launch_table) {
  using Table = ChunkTable<K>;
  static_assert(sizeof(Table) + 256 <= 4096);
  Table table{};
  int used = 0;
  int blocks = 0;
  const auto flush = [&] {
    if (blocks > 0) launch_table(table, static_cast<unsigned>(blocks));
    used = 0;
    blocks = 0;
  };
  const auto add_tensor = [&](std::size_t i) {
    if (used == Table::most_tensors) flush();
    for (int k = 0; k < K; ++k) table.array[k][used] = lists(i, k).data;
    table.count[used] = lists(i, 0).numel();
    table.index[used] = static_cast<std::int32_t>(i);
    return used++;
  };
  for (std::size_t i = 0; i < tensors; ++i) {
    const std::int64_t chunks = chunks_of(lists(i, 0).numel());
    if (chunks == 0) continue;
    int slot = add_tensor(i);
    for (std::int64_t c = 0; c < chunks; ++c) {
      if (blocks == Table::most_chunks) {
        flush();
        slot = add_tensor(i);
      }
      table.chunk[blocks] = static_cast<std::int32_t>(c);
      table.tensor[blocks++] = static_cast<std::uint8_t>(slot);
    }
  }
  flush();
}

}  // namespace lockstep::cuda_kernels
