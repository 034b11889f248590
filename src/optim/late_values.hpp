#pragma once

#include <utility>

/// @file
/// Loads into tensors that an optimizer has, whose values are not there yet.

namespace lockstep::optim {

/// While it lives, the optimizers' own tensors that its thread gives them to load are filled later,
/// on all ranks: their values now tell nothing about the state.
class LateValues {
 public:
  LateValues() noexcept : before_(std::exchange(are_expected_, true)) {}
  LateValues(const LateValues&) = delete;
  LateValues& operator=(const LateValues&) = delete;
  ~LateValues() { are_expected_ = before_; }

  static bool are_expected() noexcept { return are_expected_; }

 private:
  inline static thread_local bool are_expected_ = false;
  bool before_;
};

}  // namespace lockstep::optim
