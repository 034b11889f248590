#pragma once

#include <cstddef>
#include <string>

/// @file
/// Numbers of parameters in few words.

namespace lockstep::parallel {

/// A list of numbers as text: "0-2 5" for 0, 1, 2 and 5.
class IndexRanges {
 public:
  /// Adds a number at the end.
  void add(std::size_t index);
  /// How many there are.
  std::size_t count() const noexcept { return count_; }
  /// All of them; empty if there are none.
  std::string text() const;

 private:
  std::string earlier_;  // all ranges but the last
  std::size_t first_ = 0, last_ = 0, count_ = 0;
};

}  // namespace lockstep::parallel
