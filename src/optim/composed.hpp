#pragma once

#include <utility>
#include <vector>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "optim/state_format.hpp"

/// @file
/// Updates that are made of tensor ops, one parameter after another. They read learning rates, step
/// counts and what a loss scaler says on the device, as kernels do.

namespace lockstep::optim {

/// A parameter in the dtype that is computed in, to be changed in place, as its states are.
class ComposedUpdate {
 public:
  /// Counts the step, unless it is to be skipped.
  ComposedUpdate(ParameterState& state, const StepScalars& scalars, bool maximize)
      : state_(state), found_inf_(scalars.scaling.found_inf) {
    const DType dtype = state.parameter.dtype();
    const DType wide = state_dtype(dtype);
    value = state.master.defined() ? state.master : state.parameter.detach().to(wide);
    gradient = state.parameter.grad().to(wide);
    if (maximize) gradient = -gradient;
    if (const Tensor& scale = scalars.scaling.scale; scale.defined())
      gradient = gradient * (1.0 / scale.reshape({})).to(wide);
    Tensor steps = state.counter.slice(0, 0, 1);
    step = (steps + 1).reshape({}).to(DType::f64);
    if (!found_inf_.defined()) {
      steps.add_(1);
      return;
    }
    found_inf_ = found_inf_.reshape({});
    steps.add_(eq(found_inf_, 0.0).to(DType::i64).reshape({1}));
    keep(value);
    for (const Tensor& each : state.state)
      if (each.defined()) keep(each);
  }
  /// Takes back what a skipped step has computed, and rounds the parameter.
  void finish() {
    for (auto& [now, before] : before_) now.copy_(where(ne(found_inf_, 0.0), before, now));
    if (state_.parameter.dtype() != value.dtype()) state_.parameter.detach().copy_(value);
  }

  Tensor value, gradient;
  Tensor step;  ///< f64 scalar, from 1

 private:
  void keep(const Tensor& x) { before_.emplace_back(x, x.clone()); }

  ParameterState& state_;
  Tensor found_inf_;
  std::vector<std::pair<Tensor, Tensor>> before_;
};

/// average += share * (x - average)
inline void move_towards(Tensor& average, const Tensor& x, const Tensor& share) {
  average.add_((x - average) * share);
}

}  // namespace lockstep::optim
