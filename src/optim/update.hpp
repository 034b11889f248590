#pragma once

#include <span>
#include <vector>

#include "backend/backend.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/runtime/stream.hpp"

/// @file
/// What the optimizers' updates share.

namespace lockstep::optim {

/// The view of a tensor that may be undefined: then an absent operand.
inline ArrayView view_or_absent(const Tensor& tensor) {
  return tensor.defined() ? tensor.view() : ArrayView{};
}

/// What kernels read of a step.
inline kernels::StepState state_of(const StepScalars& scalars) {
  const auto address = [](const Tensor& scalar) {
    return scalar.defined() ? scalar.data<double>() : nullptr;
  };
  return {.lr = scalars.lr.data<double>(),
          .loss_scale = address(scalars.scaling.scale),
          .found_inf = address(scalars.scaling.found_inf)};
}

/// What the kernels work on.
inline std::vector<kernels::OptimizerTensors> kernel_operands(
    std::span<ParameterState* const> parameters) {
  std::vector<kernels::OptimizerTensors> operands;
  operands.reserve(parameters.size());
  for (const ParameterState* each : parameters)
    operands.push_back({.parameter = each->parameter.view(),
                        .gradient = each->parameter.grad().view(),
                        .master = view_or_absent(each->master),
                        .state1 = view_or_absent(each->state[0]),
                        .state2 = view_or_absent(each->state[1]),
                        .state3 = view_or_absent(each->state[2]),
                        .steps = each->steps.data<std::int64_t>()});
  return operands;
}

/// The kernels and the stream of a list of parameters, which share a device.
inline const kernels::MultiTensorKernels& kernels_of(std::span<ParameterState* const> parameters) {
  return backend::of(parameters[0]->parameter.device()).multi_tensor;
}
/// @copydoc kernels_of
inline StreamRef stream_of(std::span<ParameterState* const> parameters) {
  return current_stream(parameters[0]->parameter.device());
}

}  // namespace lockstep::optim
