#include "lockstep/optim/optimizer.hpp"

#include <algorithm>
#include <map>
#include <string>

#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/memory/block_observer.hpp"
#include "lockstep/tensor/factories.hpp"

namespace lockstep::optim {
namespace {

bool can_share_a_call(const ParameterState& a, const ParameterState& b) {
  return a.group == b.group && a.steps == b.steps && a.parameter.dtype() == b.parameter.dtype() &&
         a.parameter.device() == b.parameter.device();
}

void check_moved(const ParameterState& each) {
  for (const Tensor& state : each.state)
    LOCKSTEP_CHECK(
        !state.defined() ||
            (state.device() == each.parameter.device() && state.dtype() == each.parameter.dtype()),
        InvalidArgument, "a parameter of shape ", each.parameter.shape(), " is ",
        each.parameter.dtype(), " on ", each.parameter.device(), ", but its optimizer state ",
        state.dtype(), " on ", state.device(), "; convert the module before the first step");
}

}  // namespace

void Optimizer::add_group(std::span<const Tensor> parameters) {
  LOCKSTEP_CHECK(!parameters.empty(), InvalidArgument, "an optimizer's parameter group ",
                 group_count_, " is empty");
  for (const Tensor& parameter : parameters) {
    LOCKSTEP_CHECK(
        parameter.is_leaf() && is_floating(parameter.dtype()) && parameter.is_contiguous(),
        InvalidArgument, "an optimizer cannot change a tensor of shape ", parameter.shape(), ", ",
        parameter.dtype(), "; it needs contiguous leaves of floating dtype");
    for (const ParameterState& other : states_)
      LOCKSTEP_CHECK(!other.parameter.is_same(parameter), InvalidArgument, "a parameter of shape ",
                     parameter.shape(), " was given twice, in groups ", other.group, " and ",
                     group_count_);
    states_.push_back({parameter, group_count_, 0, {}});
  }
  ++group_count_;
}

void Optimizer::step() {
  const NoGradGuard no_recording;
  std::vector<ParameterState*> pending;
  for (ParameterState& each : states_) {
    if (!each.parameter.grad().defined()) continue;
    check_moved(each);
    pending.push_back(&each);
  }
  while (!pending.empty()) update_batch(pending);
}

void Optimizer::update_batch(std::vector<ParameterState*>& pending) {
  const auto rest = std::stable_partition(
      pending.begin(), pending.end(),
      [&](const ParameterState* each) { return can_share_a_call(*each, *pending.front()); });
  const std::vector<ParameterState*> batch(pending.begin(), rest);
  pending.erase(pending.begin(), rest);
  update(batch.front()->group, batch, batch.front()->steps + 1);
  for (ParameterState* each : batch) {
    ++each->steps;
    each->parameter.impl().storage->bump_version();
  }
}

void Optimizer::zero_grad(bool set_to_none) {
  for (ParameterState& each : states_) {
    if (set_to_none) {
      each.parameter.set_grad({});
    } else if (Tensor gradient = each.parameter.grad(); gradient.defined()) {
      discard_memory(gradient.data_ptr(), gradient.nbytes(), gradient.device());
      gradient.zero_();
    }
  }
}

std::vector<Tensor> Optimizer::parameters() const {
  std::vector<Tensor> all;
  for (const ParameterState& each : states_) all.push_back(each.parameter);
  return all;
}

void Optimizer::set_lr(double lr) {
  for (std::size_t group = 0; group < group_count_; ++group) set_lr(lr, group);
}

NamedTensors Optimizer::state_dict() const {
  NamedTensors state;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const ParameterState& each = states_[i];
    if (each.steps == 0) continue;
    const std::string prefix = std::to_string(i) + '.';
    const std::int64_t steps[] = {each.steps};
    state.emplace_back(prefix + "step", from_span<std::int64_t>(steps, {}));
    for (std::size_t k = 0; k < state_names_.size(); ++k)
      if (each.state[k].defined())
        state.emplace_back(prefix + std::string(state_names_[k]), each.state[k]);
  }
  return state;
}

void Optimizer::load_state_dict(const NamedTensors& state) {
  const NoGradGuard no_recording;
  std::map<std::string, Tensor> given(state.begin(), state.end());
  const auto take = [&](const std::string& name) {
    const auto node = given.extract(name);
    return node.empty() ? Tensor() : node.mapped();
  };
  std::vector<ParameterState> loaded = states_;
  for (std::size_t i = 0; i < loaded.size(); ++i) {
    ParameterState& each = loaded[i];
    const std::string prefix = std::to_string(i) + '.';
    const Tensor steps = take(prefix + "step");
    each.steps = steps.defined() ? static_cast<std::int64_t>(steps.item()) : 0;
    each.state = {};
    for (std::size_t k = 0; each.steps > 0 && k < state_names_.size(); ++k) {
      const std::string name = prefix + std::string(state_names_[k]);
      const Tensor value = take(name);
      if (!value.defined()) continue;
      LOCKSTEP_CHECK(
          value.shape() == each.parameter.shape() && value.dtype() == each.parameter.dtype(),
          InvalidArgument, "optimizer state ", name, " has shape ", value.shape(), ", ",
          value.dtype(), "; its parameter has ", each.parameter.shape(), ", ",
          each.parameter.dtype());
      each.state[k] = value.to(each.parameter.device()).clone();
    }
  }
  LOCKSTEP_CHECK(given.empty(), InvalidArgument, "optimizer state \"", given.begin()->first,
                 "\" is unknown to this optimizer of ", states_.size(), " parameters");
  states_ = std::move(loaded);
}

}  // namespace lockstep::optim
