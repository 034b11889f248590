#include <algorithm>
#include <bit>
#include <memory>

#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/leaf.hpp"
#include "lockstep/autograd/thread_modes.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "optim/gradients.hpp"
#include "optim/state_format.hpp"
#include "optim/update.hpp"
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
  const StateNames names = state_names(each.group, parameter);
  for (std::size_t k = 0; k < names.size(); ++k) {
    const std::int64_t elements = numel(state_shape(parameter, names[k]));
    const StateFormat format = format_for(state_format(each.group), elements);
    is_prepared &=
        is_there(each.state[k]) && each.state[k].dtype() == stored_dtype(format, parameter.dtype());
  }
  if (state_dtype(parameter.dtype()) != parameter.dtype() && uses_master_weights(each.group))
    is_prepared &= is_there(each.master) && each.written == parameter.impl().value_stamp();
  if (is_prepared) return;
  StepRecording::current()->suggest_another_try();
  refuse_in_captured_step("an optimizer makes states, or follows what others wrote to a parameter,",
                          "an eager step must come before");
}

/// An update in a step that is captured. Asked and done with each launch, for hundreds of
/// parameters: so each takes a few loads.
class Optimizer::Captured {
 public:
  Captured(Optimizer& optimizer, const Changed& changed, const std::string& scaling, Device device)
      : optimizer_(optimizer),
        changed_(changed),
        scaling_(scaling),
        device_(device),
        loads_(optimizer.loads_),
        drops_(optimizer.drops_) {
    for (const ParameterState& each : optimizer.states_)
      if (!each.parameter.requires_grad()) frozen_.push_back(&each);
    for (const ParameterState* each : changed) {
      places_.push_back(each->parameter.data_ptr());
      if (std::ranges::find(groups_, each->group) == groups_.end()) groups_.push_back(each->group);
    }
    visit_options([this](std::uint64_t value) {
      options_.push_back(value);
      return true;
    });
  }

  std::string unmet_condition() const {
    if (loads_ != optimizer_.loads_)
      return "an optimizer has loaded a state since the step was captured";
    if (drops_ != optimizer_.drops_)
      return "an optimizer has dropped states, by other options, since the step was captured";
    auto option = options_.begin();
    if (!visit_options(
            [&](std::uint64_t value) { return option != options_.end() && *option++ == value; }))
      return "options of an optimizer have changed since the step was captured";
    for (std::size_t i = 0; i < changed_.size(); ++i) {
      const Tensor& parameter = changed_[i]->parameter;
      if (!parameter.requires_grad()) return "a parameter was frozen since the step was captured";
      if (parameter.data_ptr() != places_[i])
        return "a parameter lies at another address than when the step was captured";
    }
    for (const ParameterState* each : frozen_)
      if (each->parameter.requires_grad())
        return "a parameter was unfrozen since the step was captured";
    return {};
  }

  /// As Optimizer::begin_update, where states are there and only values may have changed.
  void begin() const {
    const NoGradGuard no_recording;
    const autograd::AutocastModeGuard in_the_dtype_of_the_state;
    for (const ParameterState* each : changed_) check_holds_weights(each->parameter);
    for (ParameterState* each : changed_)
      if (each->written != each->parameter.impl().value_stamp()) optimizer_.prepare(*each);
    optimizer_.announce_update(changed_, scaling_);
    for (const ParameterState* each : changed_) wait_for_reads(*each);
    for (const std::size_t group : groups_) optimizer_.lr_on(device_, group);
  }
  void end() const { end_update(changed_); }

 private:
  /// The bits of all options but the learning rates, which launches find in memory; as long as
  /// `visit` gives true.
  template <class Visit>
  bool visit_options(const Visit& visit) const {
    for (std::size_t group = 0; group < optimizer_.group_count(); ++group)
      for (const auto& [name, value] : optimizer_.named_options(group))
        if (name != "lr" && !visit(std::bit_cast<std::uint64_t>(value))) return false;
    return true;
  }

  Optimizer& optimizer_;
  Changed changed_;
  std::string scaling_;
  Device device_;
  std::uint64_t loads_, drops_;
  std::vector<const void*> places_;
  std::vector<const ParameterState*> frozen_;
  std::vector<std::size_t> groups_;
  std::vector<std::uint64_t> options_;
};

void Optimizer::join_recording(const Changed& changed, const std::string& scaling) {
  StepRecording& recording = *StepRecording::current();
  if (recording.has_met(&base_lr_))
    refuse_in_captured_step("an optimizer makes two updates, with a schedule's step in between,",
                            "launches know one learning rate");
  recording.meets(this);
  const Device device = recording.stream().device;
  for (const ParameterState* each : changed) {
    LOCKSTEP_CHECK(each->parameter.device() == device, Unsupported,
                   "an optimizer changes a parameter on ", each->parameter.device(),
                   " in a step that is captured on ", device);
    check_prepared(*each);
  }
  const auto captured = std::make_shared<const Captured>(*this, changed, scaling, device);
  recording.require([captured] { return captured->unmet_condition(); });
  recording.before_launch([captured] { captured->begin(); });
  recording.after_launch([captured] { captured->end(); });
}

}  // namespace lockstep::optim
