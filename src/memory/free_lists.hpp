#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

/// @file
/// Free blocks sorted by size class: the two-level segregated fit of Masmano et al., "TLSF: a new
/// dynamic memory allocator for real-time systems" (ECRTS 2004). Insert, remove and find are O(1).

namespace lockstep::detail {

/// A class of sizes.
struct SizeClass {
  std::uint8_t row = 0, column = 0;
};

/// Lists of free blocks. `Block` has `size`, `previous_free`, `next_free` and `size_class`.
template <class Block>
class FreeLists {
 public:
  /// Adds a block.
  void insert(Block* block) {
    block->size_class = class_of(block->size);
    const auto [row, column] = block->size_class;
    Block*& head = heads_[row][column];
    block->previous_free = nullptr;
    block->next_free = head;
    if (head) head->previous_free = block;
    head = block;
    rows_ |= std::uint64_t{1} << row;
    columns_[row] |= std::uint32_t{1} << column;
  }

  /// Takes out a block that is in the lists.
  void remove(Block* block) {
    Block* const next = block->next_free;
    if (next) next->previous_free = block->previous_free;
    if (block->previous_free) {
      block->previous_free->next_free = next;
      return;
    }
    const auto [row, column] = block->size_class;
    heads_[row][column] = next;
    if (next) return;
    columns_[row] &= ~(std::uint32_t{1} << column);
    if (columns_[row] == 0) rows_ &= ~(std::uint64_t{1} << row);
  }

  /// A block of at least `size` bytes from the smallest class that has one, or null. The request's
  /// own class may hold smaller blocks: it looks at the first `look_at` of them before it goes up.
  Block* find(std::size_t size, int look_at) const {
    const auto [row, column] = class_of(size);
    for (Block* block = heads_[row][column]; block && look_at > 0;
         block = block->next_free, --look_at)
      if (block->size >= size) return block;
    const std::uint32_t right = columns_[row] & (~std::uint32_t{1} << column);
    if (right) return heads_[row][std::countr_zero(right)];
    const std::uint64_t above = row == 63 ? 0 : rows_ & (~std::uint64_t{1} << row);
    if (!above) return nullptr;
    const int next = std::countr_zero(above);
    return heads_[next][std::countr_zero(columns_[next])];
  }

 private:
  static constexpr int column_bits = 4;
  static constexpr int columns = 1 << column_bits;

  /// Sizes between 2^row and 2^(row + 1) fall into 16 equal columns.
  static SizeClass class_of(std::size_t size) {
    const int row = std::bit_width(size) - 1;
    const std::size_t offset = size - (std::size_t{1} << row);
    const int column = static_cast<int>(row >= column_bits ? offset >> (row - column_bits)
                                                           : offset << (column_bits - row));
    return {static_cast<std::uint8_t>(row), static_cast<std::uint8_t>(column)};
  }

  std::uint64_t rows_ = 0;
  std::array<std::uint32_t, 64> columns_{};
  std::array<std::array<Block*, columns>, 64> heads_{};
};

}  // namespace lockstep::detail
