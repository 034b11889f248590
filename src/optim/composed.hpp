#pragma once

#include <array>
#include <utility>
#include <vector>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/tensor/factories.hpp"
#include "optim/state_format.hpp"
#include "optim/update.hpp"

/// @file
/// Updates that are made of tensor ops, one parameter after another. They read learning rates, step
/// counts and what a loss scaler says on the device, as kernels do.

namespace lockstep::optim {

/// A parameter in the dtype that is computed in, and its states, to be changed in place.
class ComposedUpdate {
 public:
  ComposedUpdate(ParameterState& state, const StepScalars& scalars, bool maximize)
      : state_(state), scalars_(scalars) {
    const DType dtype = state.parameter.dtype();
    const DType wide = state_dtype(dtype);
    value = state.master.defined() ? state.master : state.parameter.detach().to(wide);
    gradient = state.parameter.grad().to(wide);
    if (maximize) gradient = -gradient;
    if (const Tensor& scale = scalars.scaling.scale; scale.defined())
      gradient = gradient * (1.0 / scale.reshape({})).to(wide);
    step = (steps() + 1).reshape({}).to(DType::f64);
    for (std::size_t k = 0; k < states.size(); ++k) states[k] = loaded(k);
    if (!scalars.scaling.found_inf.defined()) return;
    keep(value);
    for (std::size_t k = 0; k < states.size(); ++k)
      if (states[k].defined() && !is_compact(k)) keep(states[k]);
  }
  /// Takes back what a skipped step has computed, rounds what is kept in fewer bits, and counts the
  /// step.
  void finish() {
    const Tensor& found_inf = scalars_.scaling.found_inf;
    for (auto& [now, before] : before_)
      now.copy_(where(ne(found_inf.reshape({}), 0.0), before, now));
    for (std::size_t k = 0; k < states.size(); ++k)
      if (is_compact(k)) store(state_array(state_, k), states[k], static_cast<int>(k) + 1);
    if (state_.rounds_stochastically)
      store(flat(state_.parameter), value, 0);
    else if (state_.parameter.dtype() != value.dtype())
      state_.parameter.detach().copy_(value);
    if (found_inf.defined())
      steps().add_(eq(found_inf.reshape({}), 0.0).to(DType::i64).reshape({1}));
    else
      steps().add_(1);
  }

  Tensor value, gradient;
  Tensor step;  ///< f64 scalar, from 1
  std::array<Tensor, most_optimizer_states> states;

 private:
  Tensor steps() const { return state_.counter.slice(0, 0, 1); }
  void keep(const Tensor& x) { before_.emplace_back(x, x.clone()); }
  bool is_compact(std::size_t k) const {
    return state_.state[k].defined() && state_.state[k].dtype() != value.dtype();
  }
  kernels::StateTransferArguments transfer(const kernels::FlatArray& kept, const Tensor& full,
                                           int array) const {
    return {.kept = kept,
            .full = flat(full),
            .state = state_of(scalars_),
            .counter = static_cast<const kernels::StepCounter*>(state_.counter.data_ptr()),
            .rounding_key = state_.rounding_key,
            .array = array};
  }
  Tensor loaded(std::size_t k) const {
    if (!is_compact(k)) return state_.state[k];
    const Tensor full = empty(state_.state[k].shape(), value.options());
    const Device device = full.device();
    backend::optimizers_of(device).load_state(transfer(state_array(state_, k), full, 0),
                                              current_stream(device));
    return full;
  }
  void store(const kernels::FlatArray& kept, const Tensor& full, int array) const {
    const Tensor dense = full.contiguous();
    const Device device = dense.device();
    backend::optimizers_of(device).store_state(transfer(kept, dense, array),
                                               current_stream(device));
  }

  ParameterState& state_;
  const StepScalars& scalars_;
  std::vector<std::pair<Tensor, Tensor>> before_;
};

/// average += share * (x - average)
inline void move_towards(Tensor& average, const Tensor& x, const Tensor& share) {
  average.add_((x - average) * share);
}

}  // namespace lockstep::optim
