#pragma once

#include <span>
#include <type_traits>
#include <vector>

#include "backend/optimizers.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/runtime/stream.hpp"
#include "tensor/background_reads.hpp"

/// @file
/// What the optimizers' updates share.

namespace lockstep::optim {

/// Waits for those who read in the background what an update of the parameter changes.
inline void wait_for_reads(const ParameterState& each) {
  for (const auto* states : {&each.state, &each.scales})
    for (const Tensor& state : *states) lockstep::wait_for_reads(state);
  for (const Tensor* tensor : {&each.parameter, &each.counter, &each.carried, &each.master})
    lockstep::wait_for_reads(*tensor);
}

/// The array of a tensor that may be undefined: then an absent operand.
/// @throws InvalidArgument for a tensor that is not contiguous.
inline kernels::FlatArray flat(const Tensor& tensor) {
  if (!tensor.defined()) return {};
  LOCKSTEP_CHECK(tensor.is_contiguous(), InvalidArgument, "an optimizer cannot use a tensor of ",
                 "shape ", tensor.shape(), " and strides ", tensor.strides(),
                 "; it must be contiguous");
  return {tensor.data_ptr(), tensor.numel(), tensor.dtype()};
}

/// The array of a state.
inline kernels::FlatArray state_array(const ParameterState& each, std::size_t k) {
  kernels::FlatArray array = flat(each.state[k]);
  if (!each.scales[k].defined()) return array;
  array.scales = static_cast<float*>(each.scales[k].data_ptr());
  array.nonnegative = each.nonnegative[k];
  return array;
}

/// Where kernels find an f64 scalar; null for an undefined one.
inline double* number_in(const Tensor& scalar) {
  return scalar.defined() ? static_cast<double*>(scalar.data_ptr()) : nullptr;
}

/// What kernels read of a step.
inline kernels::StepState state_of(const StepScalars& scalars) {
  return {.lr = number_in(scalars.lr),
          .loss_scale = number_in(scalars.scaling.scale),
          .found_inf = number_in(scalars.scaling.found_inf)};
}

/// What the kernels work on.
inline std::vector<kernels::OptimizerTensors> kernel_operands(
    std::span<ParameterState* const> parameters) {
  std::vector<kernels::OptimizerTensors> operands;
  operands.reserve(parameters.size());
  for (const ParameterState* each : parameters)
    operands.push_back({.parameter = flat(each->parameter),
                        .gradient = flat(each->parameter.grad()),
                        .master = flat(each->master),
                        .state1 = state_array(*each, 0),
                        .state2 = state_array(*each, 1),
                        .state3 = state_array(*each, 2),
                        .counter = static_cast<kernels::StepCounter*>(each->counter.data_ptr()),
                        .carried = number_in(each->carried),
                        .rounding_key = each->rounding_key,
                        .rounds_stochastically = each->rounds_stochastically});
  return operands;
}

/// Runs one of the entries of kernels::OptimizerKernels.
template <class Rule>
using OptimizerEntry =
    kernels::Kernel<kernels::OptimizerArguments<Rule>> kernels::OptimizerKernels::*;

/// One step of parameters that share a group, a device and a dtype.
template <class Rule>
void run_rule(OptimizerEntry<Rule> entry, const std::type_identity_t<Rule>& rule,
              std::span<ParameterState* const> parameters, const StepScalars& scalars) {
  const Device device = parameters[0]->parameter.device();
  const auto tensors = kernel_operands(parameters);
  (backend::optimizers_of(device).*entry)(
      {.tensors = tensors, .state = state_of(scalars), .rule = rule}, current_stream(device));
}

}  // namespace lockstep::optim
