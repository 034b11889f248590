#pragma once

#include <cstdint>
#include <optional>

/// @file
/// What a training loop tells.

namespace lockstep::train {

/// What is known of a step when the next one is under way.
struct StepReport {
  std::int64_t step = 0;  ///< its number, from 1
  double loss = 0;
  std::optional<double> grad_norm = {};
  double lr = 0;
  double seconds = 0;  ///< from the end of the step before to its end
};

/// What an evaluation gave.
struct Evaluation {
  std::int64_t step = 0;  ///< after so many steps
  double metric = 0;      ///< of rank 0
  bool is_best = false;   ///< of all so far
  bool ends_epoch = false;
};

}  // namespace lockstep::train
