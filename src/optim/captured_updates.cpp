#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/leaf.hpp"
#include "lockstep/autograd/thread_modes.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "optim/state_dtype.hpp"
#include "runtime/step_recording.hpp"

// An optimizer's part in a step that is captured once and launched many times.

namespace lockstep::optim {

/// What is made at a parameter's first update would be made again with each launch.
void Optimizer::check_prepared(const ParameterState& each) const {
  const Tensor& parameter = each.parameter;
  const auto is_there = [&](const Tensor& tensor) {
    return tensor.defined() && tensor.device() == parameter.device();
  };
  bool is_prepared = is_there(each.counter) && (carried_name().empty() || is_there(each.carried));
  for (std::size_t k = 0; k < state_names(each.group, parameter).size(); ++k)
    is_prepared &=
        is_there(each.state[k]) && each.state[k].dtype() == state_dtype(parameter.dtype());
  if (state_dtype(parameter.dtype()) != parameter.dtype() && uses_master_weights(each.group))
    is_prepared &= is_there(each.master) && each.written == parameter.impl().value_stamp();
  if (is_prepared) return;
  StepRecording::current()->suggest_another_try();
  refuse_in_captured_step("an optimizer makes states, or follows what others wrote to a parameter,",
                          "an eager step must come before");
}

/// All options but the learning rates, which launches find in memory.
std::string Optimizer::other_options() const {
  std::string text;
  for (std::size_t group = 0; group < group_count(); ++group)
    for (const auto& [name, value] : named_options(group))
      if (name != "lr") text.append(reinterpret_cast<const char*>(&value), sizeof value);
  return text;
}

std::string Optimizer::why_not_as_captured(const Changed& changed, std::uint64_t loads,
                                           const std::string& options) const {
  if (loads != loads_) return "an optimizer has loaded a state since the step was captured";
  if (options != other_options())
    return "options of an optimizer have changed since the step was captured";
  for (const ParameterState* each : changed)
    if (!each->parameter.requires_grad())
      return "a parameter was frozen since the step was captured";
  return {};
}

void Optimizer::join_recording(const Changed& changed, const std::string& scaling) {
  StepRecording& recording = *StepRecording::current();
  if (recording.has_met(&base_lr_))
    refuse_in_captured_step("an optimizer makes two updates, with a schedule's step in between,",
                            "launches know one learning rate");
  recording.meets(this);
  std::vector<const void*> places;
  for (const ParameterState* each : changed) {
    LOCKSTEP_CHECK(each->parameter.device() == recording.stream().device, Unsupported,
                   "an optimizer changes a parameter on ", each->parameter.device(),
                   " in a step that is captured on ", recording.stream().device);
    check_prepared(*each);
    places.push_back(each->parameter.data_ptr());
  }
  recording.require([this, changed, places, loads = loads_, options = other_options()] {
    std::string reason = why_not_as_captured(changed, loads, options);
    for (std::size_t i = 0; reason.empty() && i < changed.size(); ++i)
      if (changed[i]->parameter.data_ptr() != places[i])
        reason = "a parameter lies at another address than when the step was captured";
    return reason;
  });
  recording.before_launch([this, changed, scaling, device = recording.stream().device] {
    const NoGradGuard no_recording;
    const autograd::AutocastModeGuard in_the_dtype_of_the_state;
    begin_update(changed, scaling);
    for (const ParameterState* each : changed) lr_on(device, each->group);
  });
  recording.after_launch([changed] {
    for (ParameterState* each : changed) each->parameter.impl().storage->bump_version();
    end_update(changed);
  });
}

}  // namespace lockstep::optim
