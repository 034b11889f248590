#pragma once

#include <cstdint>
#include <span>

#include "arguments/step_state.hpp"
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
  ArrayView state1 = {};      ///< SGD: momentum; Adam: first moment; absent where unused
  ArrayView state2 = {};      ///< Adam: second moment
  ArrayView max_state2 = {};  ///< Adam with amsgrad: largest second moment so far
  /// In the memory of the device: steps made so far. One more afterwards, unless it was skipped.
  std::int64_t* steps = nullptr;
};

/// One SGD step on every tensor of the list, as in PyTorch.
struct SgdArguments {
  std::span<const OptimizerTensors> tensors = {};
  StepState state = {};
  double momentum = 0.0, dampening = 0.0, weight_decay = 0.0;
  bool nesterov = false, maximize = false;
};

/// One Adam or AdamW step on every tensor of the list, as in PyTorch.
struct AdamArguments {
  std::span<const OptimizerTensors> tensors = {};
  StepState state = {};
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.0;
  bool decoupled_decay = false;  ///< AdamW
  bool amsgrad = false, maximize = false;
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

/// Whole-list updates of one backend. Work runs in the order of the stream.
struct MultiTensorKernels {
  void (*sgd)(const SgdArguments& arguments, StreamRef stream) = nullptr;
  void (*adam)(const AdamArguments& arguments, StreamRef stream) = nullptr;
  void (*square_sum)(const SquareSumArguments& arguments, StreamRef stream) = nullptr;
  void (*clip)(const ClipArguments& arguments, StreamRef stream) = nullptr;
};

}  // namespace lockstep::kernels
