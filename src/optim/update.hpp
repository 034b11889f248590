#pragma once

#include <span>
#include <vector>

#include "backend/backend.hpp"
#include "backend/reduce.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/runtime/stream.hpp"
#include "lockstep/tensor/factories.hpp"

/// @file
/// What the optimizers' updates share.

namespace lockstep::optim {

/// The view of a tensor that may be undefined: then an absent operand.
inline ArrayView view_or_absent(const Tensor& tensor) {
  return tensor.defined() ? tensor.view() : ArrayView{};
}

/// Creates state number `i` of a parameter as zeros where it is wanted and missing.
inline void ensure_state(ParameterState& parameter, std::size_t i, bool wanted) {
  Tensor& state = parameter.state[i];
  if (wanted && !state.defined()) state = zeros_like(parameter.parameter);
}

/// What the kernels work on.
inline std::vector<backend::OptimizerTensors> kernel_operands(
    std::span<ParameterState* const> parameters) {
  std::vector<backend::OptimizerTensors> operands;
  operands.reserve(parameters.size());
  for (const ParameterState* each : parameters)
    operands.push_back({each->parameter.view(), each->parameter.grad().view(),
                        view_or_absent(each->state[0]), view_or_absent(each->state[1]),
                        view_or_absent(each->state[2])});
  return operands;
}

/// The kernels and the stream of a list of parameters, which share a device.
inline backend::MultiTensor& kernels_of(std::span<ParameterState* const> parameters) {
  return *backend::of(parameters[0]->parameter.device()).multi_tensor;
}
/// @copydoc kernels_of
inline StreamRef stream_of(std::span<ParameterState* const> parameters) {
  return current_stream(parameters[0]->parameter.device());
}

}  // namespace lockstep::optim
