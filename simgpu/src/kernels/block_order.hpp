#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

/// @file
/// The order in which the blocks of a grid run.

namespace simgpu {

/// Visits 0..count-1 once each, in an order that depends on the seed: multiples of a number that
/// has no divisor in common with the count.
class BlockOrder {
 public:
  BlockOrder(std::uint64_t count, std::uint64_t seed) : count_(count), at_(seed % count) {
    step_ = (seed >> 20 | 1) % count;
    while (std::gcd(step_, count) != 1) step_ = (step_ + 1) % count;
  }

  /// Lets fewer of them be visited.
  void limit(std::uint64_t most) { visited_ = std::max(visited_, count_ - std::min(most, count_)); }

  /// How many are left.
  std::uint64_t left() const { return count_ - visited_; }

  /// @return false after the last.
  bool next(std::uint64_t& block) {
    if (visited_ == count_) return false;
    ++visited_;
    block = at_;
    at_ = (at_ + step_) % count_;
    return true;
  }

 private:
  std::uint64_t count_;
  std::uint64_t at_;
  std::uint64_t step_ = 1;
  std::uint64_t visited_ = 0;
};

}  // namespace simgpu
