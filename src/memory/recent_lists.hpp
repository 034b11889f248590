#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

/// @file
/// The blocks that were returned last, by exact size: the fast path of a pool.

namespace lockstep::detail {

/// Stacks of blocks: one for each of the smallest sizes, while larger ones share a stack by their
/// hash, of which the top alone is given out, to who asks for its size. `Block` has `size` and
/// `next_free`. Sizes are counted in units of the pool's granularity.
template <class Block>
class RecentLists {
 public:
  /// Units of the largest blocks that are kept.
  static constexpr std::size_t largest = 1024;

  /// @param unit_bits log2 of a unit in bytes
  explicit RecentLists(int unit_bits) : unit_bits_(unit_bits) {}

  /// The last block of just `units` units, at most `largest`, or null.
  Block* take(std::size_t units) {
    const std::size_t slot = slot_of(units);
    Block* const block = heads_[slot];
    if (!block || block->size >> unit_bits_ != units) return nullptr;
    return take_from(slot);
  }

  /// Keeps a block, unless too much is held already: then false.
  bool keep(Block* block, std::size_t units) {
    if (held_ + units > limit) return false;
    const std::size_t slot = slot_of(units);
    Block*& head = heads_[slot];
    block->next_free = head;
    head = block;
    held_ += units;
    present_[slot / 64] |= bit(slot);
    return true;
  }

  /// Any block, or null when none is left.
  Block* take_any() {
    for (std::size_t word = 0; word < present_.size(); ++word)
      if (present_[word])
        return take_from(word * 64 + static_cast<std::size_t>(std::countr_zero(present_[word])));
    return nullptr;
  }

 private:
  static constexpr std::size_t limit = 4096;
  static constexpr std::size_t exact = 64;  // sizes that have a stack each
  static constexpr int shared_bits = 6;     // log2 of the stacks of larger ones
  static constexpr std::size_t slots = exact + (std::size_t{1} << shared_bits);

  static std::size_t slot_of(std::size_t units) {
    if (units <= exact) return units - 1;
    // Knuth's multiplicative hash (The Art of Computer Programming, volume 3, 6.4).
    return exact + (static_cast<std::uint32_t>(units) * 2654435769u >> (32 - shared_bits));
  }
  static std::uint64_t bit(std::size_t slot) { return std::uint64_t{1} << slot % 64; }

  Block* take_from(std::size_t slot) {
    Block*& head = heads_[slot];
    Block* const block = head;
    head = block->next_free;
    held_ -= block->size >> unit_bits_;
    if (!head) present_[slot / 64] &= ~bit(slot);
    return block;
  }

  int unit_bits_;
  std::array<Block*, slots> heads_{};
  std::array<std::uint64_t, slots / 64> present_{};  // which stacks hold any
  std::size_t held_ = 0;
};

}  // namespace lockstep::detail
