#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>

#include "arguments/kernel.hpp"
#include "arguments/multi_tensor.hpp"
#include "arguments/step_state.hpp"
#include "functional/optimizer.hpp"
#include "lockstep/core/dtype.hpp"

/// @file
/// Steps of optimizers over whole lists of tensors: one call for all of them, on a GPU one launch.

namespace lockstep::kernels {

/// A tensor's steps, in the memory of the device.
struct StepCounter {
  std::int64_t steps;           ///< made so far
  unsigned long long arrivals;  ///< of blocks in the launch that runs; else 0
};

/// An array whose elements follow one another.
struct FlatArray {
  void* data = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::f32;
  /// Of a state in 8 bits (dtype u8, see functional/compact_state.hpp): one for each `state_block`
  /// elements.
  float* scales = nullptr;
  bool nonnegative = false;  ///< of such a state: its elements are

  /// False for an operand that is absent.
  explicit operator bool() const { return data != nullptr; }
};

/// What one tensor of an optimizer's step works on, all of as many elements as the parameter. The
/// states and the master copy are f64 for f64 parameters, else f32. States of other parameters may
/// also be in bf16 or 8 bits, which are rounded stochastically.
struct OptimizerTensors {
  FlatArray parameter = {};
  FlatArray gradient = {};
  FlatArray master =
      {};  ///< what is updated, and the parameter rounded from; absent: the parameter
  /// What the rule remembers of each element; those that it has no use for may be absent.
  FlatArray state1 = {}, state2 = {}, state3 = {};
  /// One step more afterwards, unless it was skipped.
  StepCounter* counter = nullptr;
  /// In the memory of the device: what the rule's coefficients carry from step to step, if any.
  double* carried = nullptr;
  /// Tells the random roundings of the optimizer's tensors apart.
  std::uint32_t rounding_key = 0;
  /// A bf16 parameter without a master copy is rounded stochastically.
  bool rounds_stochastically = false;

  /// True if something is rounded stochastically.
  bool is_compact() const {
    const auto in_few_bits = [](const FlatArray& state) {
      return state && (state.dtype == DType::bf16 || state.dtype == DType::u8);
    };
    return rounds_stochastically || in_few_bits(state1) || in_few_bits(state2) ||
           in_few_bits(state3);
  }
};

/// One step on every tensor of the list, by a rule of functional/optimizer.hpp.
template <class Rule>
struct OptimizerArguments {
  std::span<const OptimizerTensors> tensors = {};
  StepState state = {};
  Rule rule = {};
  /// For rules by layer, in the memory of the device: two sums of squares for each tensor. Written
  /// by `measure`, read by the update.
  double* squares = nullptr;

  auto lists() { return std::tuple(&tensors); }

  /// Of a tensor's step, counted from 1. Reads the memory of the device.
  LOCKSTEP_HD typename Rule::Coefficients coefficients(std::int64_t step, const double* carried,
                                                       std::int64_t tensor) const {
    OptimizerStep now{.lr = *state.lr, .unscaling = state.unscaling(), .number = step};
    if constexpr (requires(typename Rule::Coefficients c) { c.carried; }) now.carried = *carried;
    if (squares) {
      now.parameter_square = squares[2 * tensor];
      now.update_square = squares[2 * tensor + 1];
    }
    return rule.coefficients(now);
  }
};

/// What an update of tensor ops works on in f32, to or from where it is kept in fewer bits.
struct StateTransferArguments {
  FlatArray kept = {};  ///< bf16, or in 8 bits
  FlatArray full = {};  ///< f32
  StepState state = {};
  /// To round stochastically by: as the update of OptimizerTensors does before it counts the step.
  const StepCounter* counter = nullptr;
  std::uint32_t rounding_key = 0;
  int array = 0;  ///< 0: the parameter; k: its k-th state
};

/// The optimizers of one backend. Work runs in the order of the stream.
struct OptimizerKernels {
#define LOCKSTEP_OPTIMIZER(name, Rule) Kernel<OptimizerArguments<Rule>> name = {};
  LOCKSTEP_OPTIMIZERS(LOCKSTEP_OPTIMIZER)
#undef LOCKSTEP_OPTIMIZER
  // Before the update, `measure` of every element; its sums go to `squares`.
#define LOCKSTEP_OPTIMIZER(name, Rule) Kernel<OptimizerArguments<Rule>> name##_measure = {};
  LOCKSTEP_LAYERWISE_OPTIMIZERS(LOCKSTEP_OPTIMIZER)
#undef LOCKSTEP_OPTIMIZER
  Kernel<StateTransferArguments> load_state = {};
  Kernel<StateTransferArguments> store_state = {};  ///< unless the step is to be skipped
};

}  // namespace lockstep::kernels
