#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

/// @file
/// A set of addresses.

namespace simgpu {

/// Ranges of addresses; those that touch are one. Not for several threads.
class RangeSet {
 public:
  void add(std::uintptr_t begin, std::uintptr_t end) {
    auto at = first_ending_at_or_after(begin);
    while (at != ranges_.end() && at->first <= end) {
      begin = std::min(begin, at->first);
      end = std::max(end, at->second);
      at = ranges_.erase(at);
    }
    ranges_.emplace(begin, end);
  }

  void erase(std::uintptr_t begin, std::uintptr_t end) {
    auto at = first_ending_at_or_after(begin + 1);
    while (at != ranges_.end() && at->first < end) {
      const auto [from, to] = *at;
      at = ranges_.erase(at);
      if (from < begin) ranges_.emplace(from, begin);
      if (to > end) at = ranges_.emplace(end, to).first;
    }
  }

  /// The whole range around an address.
  std::optional<std::pair<std::uintptr_t, std::uintptr_t>> find(std::uintptr_t address) const {
    const auto after = ranges_.upper_bound(address);
    if (after == ranges_.begin()) return std::nullopt;
    const auto& range = *std::prev(after);
    if (address >= range.second) return std::nullopt;
    return std::pair(range.first, range.second);
  }

 private:
  using Ranges = std::map<std::uintptr_t, std::uintptr_t>;

  Ranges::iterator first_ending_at_or_after(std::uintptr_t address) {
    const auto after = ranges_.upper_bound(address);
    if (after == ranges_.begin()) return after;
    const auto before = std::prev(after);
    return before->second >= address ? before : after;
  }

  Ranges ranges_;
};

}  // namespace simgpu
