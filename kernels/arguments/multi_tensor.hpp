#pragma once

#include <cstdint>
#include <span>

#include "arguments/step_state.hpp"
#include "functional/loss_scale.hpp"
#include "functional/optimizer.hpp"
#include "lockstep/core/array_view.hpp"
#include "lockstep/runtime/stream.hpp"

/// @file
/// Updates of whole lists of arrays: one call (on a GPU one launch, or few) for all of them.

namespace lockstep::kernels {

/// What one tensor of an optimizer's step works on. All of one shape and contiguous. The states and
/// the master copy are f64 for f64 parameters, else f32.
struct OptimizerTensors {
  ArrayView parameter = {};
  ArrayView gradient = {};
  ArrayView master =
      {};  ///< what is updated, and the parameter rounded from; absent: the parameter
  /// What the rule remembers of each element; those that it has no use for may be absent.
  ArrayView state1 = {}, state2 = {}, state3 = {};
  /// In the memory of the device: steps made so far. One more afterwards, unless it was skipped.
  std::int64_t* steps = nullptr;
};

/// One step on every tensor of the list, by a rule of functional/optimizer.hpp.
template <class Rule>
struct OptimizerArguments {
  std::span<const OptimizerTensors> tensors = {};
  StepState state = {};
  Rule rule = {};

  /// Of a tensor's step, counted from 1. Reads the memory of the device.
  LOCKSTEP_HD typename Rule::Coefficients coefficients(std::int64_t step) const {
    return rule.coefficients({.lr = *state.lr, .unscaling = state.unscaling(), .number = step});
  }
};

/// out (one f64 element) = sum of squares over all arrays.
struct SquareSumArguments {
  ArrayView out = {};
  std::span<const ArrayView> arrays = {};
};

/// Multiplies every array by min(1, limit / (sqrt(square_sum) + 1e-6)), read on the device.
struct ClipArguments {
  std::span<const ArrayView> arrays = {};
  ArrayView square_sum = {};  ///< one f64 element
  double limit = 0.0;
};

/// Divides every array by a number that is read on the device. @pre its inverse is finite.
struct DivideArguments {
  std::span<const ArrayView> arrays = {};
  ArrayView divisor = {};  ///< one f64 element
};

/// The loss scale after a step. All arrays are of one element.
struct LossScaleArguments {
  ArrayView scale = {};                             ///< f64
  ArrayView finite_steps = {}, skipped_steps = {};  ///< i64
  ArrayView found_inf = {};                         ///< f64; not 0: the step was skipped
  LossScaleRule rule = {};
};

/// Whole-list updates of one backend. Work runs in the order of the stream.
struct MultiTensorKernels {
#define LOCKSTEP_OPTIMIZER(name, Rule) \
  void (*name)(const OptimizerArguments<Rule>& arguments, StreamRef stream) = nullptr;
  LOCKSTEP_OPTIMIZERS(LOCKSTEP_OPTIMIZER)
#undef LOCKSTEP_OPTIMIZER
  void (*square_sum)(const SquareSumArguments& arguments, StreamRef stream) = nullptr;
  void (*clip)(const ClipArguments& arguments, StreamRef stream) = nullptr;
  void (*divide)(const DivideArguments& arguments, StreamRef stream) = nullptr;
  void (*update_loss_scale)(const LossScaleArguments& arguments, StreamRef stream) = nullptr;
};

}  // namespace lockstep::kernels
