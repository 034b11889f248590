#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>

/// @file
/// Values of ranges of addresses.

namespace simgpu {

/// Ranges that do not overlap, with a value each. Not for several threads.
template <class T>
class RangeMap {
 public:
  bool empty() const { return ranges_.empty(); }

  /// Gives a range a value; what it covers loses its own.
  void set(std::uintptr_t begin, std::uintptr_t end, T value) {
    erase(begin, end);
    if (begin < end) ranges_.emplace(begin, Range{end, std::move(value)});
  }

  /// Takes a range out; those that reach out of it keep the rest.
  void erase(std::uintptr_t begin, std::uintptr_t end) {
    for (auto at = first_behind(begin); at != ranges_.end() && at->first < end;) {
      const std::uintptr_t from = at->first;
      const Range range = std::move(at->second);
      at = ranges_.erase(at);
      if (from < begin) ranges_.emplace(from, Range{begin, range.value});
      if (range.end > end) ranges_.emplace(end, range);
    }
  }

  /// The value of the first range that has an address of [begin, end); null if none has.
  /// @param where set to the first such address, and the end of the range.
  const T* find(std::uintptr_t begin, std::uintptr_t end,
                std::pair<std::uintptr_t, std::uintptr_t>* where = nullptr) const {
    const auto at = first_behind(begin);
    if (at == ranges_.end() || at->first >= end) return nullptr;
    if (where != nullptr) *where = {std::max(at->first, begin), at->second.end};
    return &at->second.value;
  }

 private:
  struct Range {
    std::uintptr_t end;
    T value;
  };
  using Ranges = std::map<std::uintptr_t, Range>;

  /// The first range that ends behind an address.
  typename Ranges::const_iterator first_behind(std::uintptr_t address) const {
    const auto after = ranges_.upper_bound(address);
    if (after == ranges_.begin()) return after;
    const auto before = std::prev(after);
    return before->second.end > address ? before : after;
  }
  typename Ranges::iterator first_behind(std::uintptr_t address) {
    const auto after = ranges_.upper_bound(address);
    if (after == ranges_.begin()) return after;
    const auto before = std::prev(after);
    return before->second.end > address ? before : after;
  }

  Ranges ranges_;
};

}  // namespace simgpu
