#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

/// @file
/// The small blocks that were returned last, by exact size: the fast path of a pool.

namespace lockstep::detail {

/// Stacks of blocks, one for each of the smallest sizes. `Block` has `size` and `next_free`.
/// Sizes are counted in units of the pool's granularity.
template <class Block>
class RecentLists {
 public:
  /// Units of the largest blocks that are kept.
  static constexpr std::size_t largest = 64;

  /// The last block of just `units` units, at most `largest`, or null.
  Block* take(std::size_t units) {
    Block*& head = heads_[units - 1];
    Block* block = head;
    if (!block) return nullptr;
    head = block->next_free;
    held_ -= units;
    if (!head) present_ &= ~bit(units);
    return block;
  }

  /// Keeps a block, unless too much is held already: then false.
  bool keep(Block* block, std::size_t units) {
    if (held_ + units > limit) return false;
    Block*& head = heads_[units - 1];
    block->next_free = head;
    head = block;
    held_ += units;
    present_ |= bit(units);
    return true;
  }

  /// Any block, or null when none is left.
  Block* take_any() {
    return present_ ? take(static_cast<std::size_t>(std::countr_zero(present_)) + 1) : nullptr;
  }

 private:
  static constexpr std::size_t limit = 4096;
  static std::uint64_t bit(std::size_t units) { return std::uint64_t{1} << (units - 1); }

  std::array<Block*, largest> heads_{};
  std::uint64_t present_ = 0;
  std::size_t held_ = 0;
};

}  // namespace lockstep::detail
