#pragma once

#include <cstddef>
#include <sstream>
#include <string>

#include "lockstep/core/error.hpp"

/// @file
/// Many faults in one message.

namespace lockstep::detail {

/// Collects faults for a message: the first few of them, and how many others there are.
class FaultList {
 public:
  /// A fault, for the caller to write.
  std::ostream& add() { return ++count_ <= told ? told_ << "\n  " : dropped_; }
  /// What would help, behind them.
  std::ostream& hint() { return hint_; }
  bool is_empty() const noexcept { return count_ == 0; }
  /// Of one that is not empty.
  std::string first() const {
    const std::string text = told_.str().substr(3);
    return text.substr(0, text.find('\n'));
  }
  /// A line each.
  std::string text() const {
    std::string text = told_.str();
    if (count_ > told) text += "\n  and " + std::to_string(count_ - told) + " others";
    return text + hint_.str();
  }

 private:
  static constexpr std::size_t told = 20;

  lockstep::detail::TextStream told_, hint_;
  std::ostream dropped_{nullptr};
  std::size_t count_ = 0;
};

}  // namespace lockstep::detail
