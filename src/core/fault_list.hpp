#pragma once

#include <cstddef>
#include <sstream>
#include <string>

/// @file
/// Many faults in one message.

namespace lockstep::detail {

/// Collects faults for a message: the first few of them, and how many others there are.
class FaultList {
 public:
  /// A fault, for the caller to write.
  std::ostream& add() {
    if (++count_ <= told) return told_ << "\n  ";
    return others_;
  }
  /// What would help, behind them.
  std::ostream& hint() { return hint_; }
  bool is_empty() const noexcept { return count_ == 0; }
  /// A line each.
  std::string text() const {
    std::string text = told_.str();
    if (count_ > told) text += "\n  and " + std::to_string(count_ - told) + " others";
    return text + hint_.str();
  }

 private:
  static constexpr std::size_t told = 20;

  std::ostringstream told_, others_, hint_;
  std::size_t count_ = 0;
};

}  // namespace lockstep::detail
