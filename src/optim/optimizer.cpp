#include "lockstep/optim/optimizer.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>

#include "core/exact_number.hpp"
#include "core/fnv_hash.hpp"
#include "core/type_name.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/leaf.hpp"
#include "lockstep/autograd/ops/comparison.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/autograd/thread_modes.hpp"
#include "lockstep/memory/memory_tag.hpp"
#include "lockstep/tensor/factories.hpp"
#include "optim/gradients.hpp"
#include "optim/state_format.hpp"
#include "optim/update.hpp"
#include "runtime/step_recording.hpp"
#include "tensor/write_note.hpp"

namespace lockstep::optim {
namespace {

bool can_share_a_call(const ParameterState& a, const ParameterState& b) {
  return a.group == b.group && a.parameter.dtype() == b.parameter.dtype() &&
         a.parameter.device() == b.parameter.device();
}

/// Names and memory of parameters, no two of which share either.
class KnownParameters {
 public:
  /// The state that a parameter shares memory with, or is.
  const ParameterState* sharing(const Tensor& parameter) const {
    if (parameter.numel() == 0) {
      const auto same = std::ranges::find_if(
          empty_, [&](const ParameterState* each) { return each->parameter.is_same(parameter); });
      return same == empty_.end() ? nullptr : *same;
    }
    const auto* const begin = static_cast<const char*>(parameter.data_ptr());
    const auto next = by_place_.lower_bound(begin);
    if (next != by_place_.end() && next->first < begin + parameter.nbytes()) return next->second;
    if (next == by_place_.begin()) return nullptr;
    const auto& [place, before] = *std::prev(next);
    return begin < place + before->parameter.nbytes() ? before : nullptr;
  }
  bool has(const std::string& name) const { return names_.contains(name); }
  void add(const ParameterState& state) {
    const Tensor& parameter = state.parameter;
    if (!state.name.empty()) names_.insert(state.name);
    if (parameter.numel() == 0)
      empty_.push_back(&state);
    else
      by_place_.emplace(static_cast<const char*>(parameter.data_ptr()), &state);
  }

 private:
  std::set<std::string_view> names_;
  std::map<const char*, const ParameterState*, std::less<>> by_place_;  // no two devices share one
  std::vector<const ParameterState*> empty_;
};

void check_can_change(const Tensor& parameter) {
  LOCKSTEP_CHECK(parameter.is_leaf(), InvalidArgument,
                 "an optimizer cannot change a tensor of "
                 "shape ",
                 parameter.shape(), " that an op computed; give it what it was computed from");
  LOCKSTEP_CHECK(is_floating(parameter.dtype()) && parameter.is_contiguous(), InvalidArgument,
                 "an optimizer cannot change a tensor of shape ", parameter.shape(), ", ",
                 parameter.dtype(), " and strides ", parameter.strides(),
                 "; it needs contiguous tensors of floating dtype");
}

void check_can_read(const GradientScaling& scaling, Device device) {
  for (const Tensor& scalar : {scaling.scale, scaling.found_inf})
    LOCKSTEP_CHECK(!scalar.defined() || (scalar.dtype() == DType::f64 && scalar.numel() == 1 &&
                                         scalar.device() == device),
                   InvalidArgument, "an optimizer of parameters on ", device,
                   " was given a gradient scaling of shape ", scalar.shape(), ", ", scalar.dtype(),
                   " on ", scalar.device(), "; it needs one f64 element there");
}

std::string short_hash(std::uint64_t hash) { return "#" + std::to_string(hash % 1'000'000'000); }

/// The master copy of a parameter that somebody else may have written: the former one where it
/// still rounds to the parameter's value, elsewhere that value.
Tensor reconciled(const Tensor& master, const Tensor& parameter) {
  return where(eq(master.to(parameter.dtype()), parameter), master, parameter.to(master.dtype()));
}

}  // namespace

void Optimizer::add_group(const ParameterList& parameters, double lr) {
  refuse_in_captured_step("a parameter group is added", "add it between steps");
  std::vector<ParameterState> states = states_;
  states.reserve(states.size() + parameters.entries().size());  // they stay in their places
  KnownParameters known;
  for (const ParameterState& each : states) known.add(each);
  for (const auto& [name, parameter] : parameters.entries()) {
    check_can_change(parameter);
    LOCKSTEP_CHECK(autograd::share_of(parameter) != autograd::GradientShare::none, InvalidArgument,
                   "an optimizer was given a parameter of shape ", parameter.shape(), " ", name,
                   ", whose gradient is shared out over ranks; give it the parameters of the "
                   "DistributedDataParallel, not of the module");
    const ParameterState* const other = known.sharing(parameter);
    LOCKSTEP_CHECK(!other, InvalidArgument, "a parameter of shape ", parameter.shape(),
                   name.empty() ? "" : ", ", name,
                   ", was given twice, or shares memory with another, in groups ", other->group,
                   " and ", group_count());
    LOCKSTEP_CHECK(!known.has(name), InvalidArgument,
                   "an optimizer was given two parameters of the name \"", name,
                   "\"; named_parameters(prefix) tells several modules' apart");
    ParameterState& added = states.emplace_back();
    added.name = name;
    added.parameter = parameter;
    added.group = group_count();
    added.rounding_key = static_cast<std::uint32_t>(
        name.empty() ? states.size() - 1 : lockstep::detail::fnv_hash(name.data(), name.size()));
    known.add(added);
  }
  base_lr_.push_back(lr);
  states_ = std::move(states);
  for (DeviceRates& rates : rates_) {
    rates.of_group.resize(group_count());
    rates.written.resize(group_count());
  }
}

void Optimizer::check_not_empty() const {
  LOCKSTEP_CHECK(!states_.empty(), InvalidArgument, "an optimizer was given no parameters");
}

bool Optimizer::has_shards() const {
  return std::ranges::any_of(states_, [](const ParameterState& each) {
    return autograd::share_of(each.parameter) == autograd::GradientShare::part;
  });
}

void Optimizer::refuse_shards(const ParameterList& parameters, std::string_view hint) {
  for (const auto& [name, parameter] : parameters.entries())
    LOCKSTEP_CHECK(autograd::share_of(parameter) != autograd::GradientShare::part, InvalidArgument,
                   "the optimizer computes with parameters as a whole, and was given this rank's "
                   "shards of them; ",
                   hint);
}

namespace {

/// " beta1 0.9 weight_decay 0.1/0" of groups that differ in their weight_decay.
std::string describe_other_options(std::span<const NamedOptions> groups) {
  std::string text;
  for (std::size_t i = 0; i < groups[0].size(); ++i) {
    const auto& [name, first] = groups[0][i];
    if (name == "lr") continue;
    const bool is_shared = std::ranges::all_of(
        groups, [&, value = first](const NamedOptions& each) { return each[i].second == value; });
    text.append(" ").append(name).append(" " + detail::exact(first));
    if (is_shared) continue;
    for (const NamedOptions& each : groups.subspan(1)) text += "/" + detail::exact(each[i].second);
  }
  return text;
}

}  // namespace

/// The name of its class.
const std::string& Optimizer::kind() const {
  if (kind_.empty()) kind_ = detail::short_name_of(detail::full_name_of(typeid(*this)));
  return kind_;
}

/// Whoever reduces the gradients compares it between the ranks, whose messages show its beginning:
/// the learning rates, what values are kept in and for how many parameters, then the optimizer's
/// kind and all other options, of groups that have the same once, and from the second update on a
/// hash of them, for they may be loaded at any time; and which state was loaded last, and when, for
/// one that a single rank has loaded would part it from the others.
std::string Optimizer::describe_next_update() const {
  std::string text = "update " + std::to_string(updates_ + 1), counts;
  std::vector<NamedOptions> options;  // of each group
  if (loaded_)
    text += detail::concat(" from state ", short_hash(*loaded_), " loaded after update ",
                           loaded_after_);
  if (drops_ > 0) text += detail::concat(", states dropped by ", drops_, " changes of options,");
  text += " with";
  for (std::size_t group = 0; group < group_count(); ++group) {
    options.push_back(named_options(group));
    for (const auto& [name, value] : options.back())
      if (name == "lr") text += " lr " + detail::exact(value);
    if (state_format(group) != StateFormat::full)
      text.append(" in ").append(name_of(state_format(group)));
    if (rounds_stochastically(group)) text.append(" rounded stochastically");
    if (group_count() > 1)
      counts += detail::concat(group == 0 ? " for " : " and ",
                               std::ranges::count(states_, group, &ParameterState::group));
  }
  text += counts;
  text += ", " + kind();
  const std::string others = describe_other_options(options);
  if (others.empty()) return text;
  if (updates_ == 0) return text + others;
  return text + " (options " + short_hash(std::hash<std::string>{}(others)) + ")";
}

void Optimizer::step(const GradientScaling& scaling) {
  const NoGradGuard no_recording;
  const autograd::AutocastModeGuard in_the_dtype_of_the_state;
  Changed pending;
  for (ParameterState& each : states_) {
    if (!each.parameter.requires_grad()) continue;
    check_update(each.parameter);
    if (!each.parameter.grad().defined()) continue;
    check_can_read(scaling, each.parameter.device());
    pending.push_back(&each);
  }
  const Changed changed = pending;
  if (StepRecording::current()) [[unlikely]]
    join_recording(changed, scaling.how);
  else
    begin_update(changed, scaling.how);
  while (!pending.empty()) update_batch(pending, scaling);
  for (ParameterState* each : changed) autograd::leaf_of(each->parameter).finish_update();
  for (ParameterState* each : changed) autograd::leaf_of(each->parameter).finish_updates();
  end_update(changed);
  run_post_hooks();
}

std::uint64_t Optimizer::register_step_post_hook(std::function<void()> hook) {
  post_hooks_.emplace_back(++next_hook_, std::move(hook));
  return next_hook_;
}

void Optimizer::remove_step_post_hook(std::uint64_t hook) noexcept {
  std::erase_if(post_hooks_, [hook](const auto& each) { return each.first == hook; });
}

/// A hook may remove itself or another one, or add one, which is for the next step.
void Optimizer::run_post_hooks() {
  std::vector<std::uint64_t> numbers;
  for (const auto& [number, hook] : post_hooks_) numbers.push_back(number);
  for (const std::uint64_t number : numbers) {
    const auto found =
        std::ranges::find(post_hooks_, number, [](auto& each) { return each.first; });
    if (found == post_hooks_.end()) continue;
    const auto hook = found->second;
    hook();
  }
}

/// The host's part of an update, before its work is queued.
/// @param scaling what a loss scaler says of the gradients
void Optimizer::begin_update(const Changed& changed, const std::string& scaling) {
  for (ParameterState* each : changed) prepare(*each);
  announce_update(changed, scaling);
  for (const ParameterState* each : changed) wait_for_reads(*each);
}

/// Counts an update, and tells of it whoever reduces the gradients.
void Optimizer::announce_update(const Changed& changed, const std::string& scaling) {
  std::string how;
  for (const ParameterState* each : changed) {
    autograd::LeafNode& leaf = autograd::leaf_of(each->parameter);
    if (!leaf.has_sink()) continue;
    if (how.empty()) {
      how = describe_next_update();
      if (!scaling.empty()) how += ", " + scaling;
    }
    leaf.announce_update(how);
  }
  ++updates_;
}

void Optimizer::end_update(const Changed& changed) {
  for (ParameterState* each : changed) each->written = each->parameter.impl().value_stamp();
}

/// @throws InvalidArgument where the parameter's dtype does not go with how the group is kept.
void Optimizer::check_formats(const ParameterState& each) const {
  const DType dtype = each.parameter.dtype();
  const StateFormat format = state_format(each.group);
  LOCKSTEP_CHECK(format == StateFormat::full || dtype != DType::f64, InvalidArgument,
                 "an optimizer with state_format ", name_of(format), " was given an f64 parameter",
                 each.name.empty() ? "" : " ", each.name,
                 "; states of f64 parameters are f64: put it into a group with state_format full");
  LOCKSTEP_CHECK(!rounds_stochastically(each.group) || dtype != DType::f16, InvalidArgument,
                 "an optimizer with stochastic_rounding was given an f16 parameter",
                 each.name.empty() ? "" : " ", each.name,
                 "; it is offered for bf16: keep master_weights for f16");
}

/// @throws InvalidArgument where a class of optimizers names states that no state dict can keep.
void Optimizer::check_state_names(const StateNames& names) const {
  const auto most = std::tuple_size_v<decltype(ParameterState::state)>;
  LOCKSTEP_CHECK(names.size() <= most, InvalidArgument, kind(), " has ", names.size(),
                 " states for each parameter; there is room for ", most);
  for (auto name = names.begin(); name != names.end(); ++name)
    LOCKSTEP_CHECK(*name != "step" && *name != "group" && *name != "master" &&
                       *name != carried_name() && std::find(names.begin(), name, *name) == name,
                   InvalidArgument, kind(), " names a state '", *name,
                   "', as another of its states or the step, group or master is named; each needs "
                   "a name of its own");
}

/// Makes state and master copy of a parameter ready for an update: created at its first, and where
/// the parameter was moved, converted or written to, brought after it.
/// @param reads_only what tensors of the state hold stays: `each` gets others.
void Optimizer::prepare(ParameterState& each, bool reads_only) const {
  const Tensor& parameter = each.parameter;
  check_can_change(parameter);
  // Under a name of its own, unless the program has given one.
  const MemoryTag tag(lockstep::detail::memory_tag.empty() ? "optimizer states"
                                                           : lockstep::detail::memory_tag);
  const TensorOptions options{state_dtype(parameter.dtype()), parameter.device()};
  check_formats(each);
  each.rounds_stochastically =
      parameter.dtype() == DType::bf16 && rounds_stochastically(each.group);
  const auto follow = [&](Tensor& tensor, const Shape& shape, DType dtype) {
    LOCKSTEP_CHECK(tensor.shape() == shape, InvalidArgument, "a parameter has become of shape ",
                   parameter.shape(), "; its optimizer state has ", tensor.shape(),
                   ". Make a new optimizer for it");
    if (tensor.dtype() != dtype || tensor.device() != options.device)
      tensor = tensor.to(options.device, dtype);
  };
  const auto place = [&](Tensor& tensor, const Shape& shape, DType dtype) {
    if (!tensor.defined())
      tensor = zeros(shape, {.dtype = dtype, .device = options.device});
    else if (tensor.device() != options.device)
      tensor = tensor.to(options.device);
  };
  const StateNames names = state_names(each.group, parameter);
  if (!each.counter.defined()) check_state_names(names);
  place(each.counter, {2}, DType::i64);
  if (!carried_name().empty()) place(each.carried, {}, DType::f64);
  for (std::size_t k = 0; k < names.size(); ++k) {
    each.nonnegative[k] = is_nonnegative(names[k]);
    const Shape shape = state_shape(parameter, names[k]);
    const StateFormat format = format_for(state_format(each.group), numel(shape));
    if (!each.state[k].defined()) {
      const StoredState zero = zero_state(format, shape, parameter.dtype(), options.device);
      each.state[k] = zero.values;
      each.scales[k] = zero.scales;
    } else {
      follow(each.state[k], shape, stored_dtype(format, parameter.dtype()));
      if (each.scales[k].defined()) each.scales[k] = each.scales[k].to(options.device);
    }
  }
  if (options.dtype == parameter.dtype() || !uses_master_weights(each.group)) {
    each.master = {};
  } else if (!each.master.defined()) {
    each.master = parameter.detach().to(options.dtype);
  } else if (each.written != parameter.impl().value_stamp()) {
    follow(each.master, parameter.shape(), options.dtype);
    const Tensor value = reconciled(each.master, parameter.detach());
    if (reads_only)
      each.master = value;
    else
      each.master.copy_(value);  // captured steps know its place
  }
}

void Optimizer::update_batch(std::vector<ParameterState*>& pending,
                             const GradientScaling& scaling) {
  const auto rest = std::stable_partition(
      pending.begin(), pending.end(),
      [&](const ParameterState* each) { return can_share_a_call(*each, *pending.front()); });
  const std::vector<ParameterState*> batch(pending.begin(), rest);
  pending.erase(pending.begin(), rest);
  const std::size_t group = batch.front()->group;
  update(group, batch, {.lr = lr_on(batch.front()->parameter.device(), group), .scaling = scaling});
  for (ParameterState* each : batch) note_write(each->parameter);
}

/// The learning rate of a group in the memory of a device, written there where it has changed.
const Tensor& Optimizer::lr_on(Device device, std::size_t group) {
  auto rates = std::ranges::find(rates_, device, &DeviceRates::device);
  if (rates == rates_.end()) {
    rates = rates_.insert(rates_.end(), DeviceRates{device, {}, {}});
    rates->of_group.resize(group_count());
    rates->written.resize(group_count());
  }
  Tensor& memory = rates->of_group[group];
  const double value = lr(group);
  if (memory.defined() && (rates->written[group] == value || StepRecording::current()))
    return memory;  // a captured step finds there what is written before each launch
  // The value travels in the arguments of a kernel: nothing to wait for, and nothing to keep.
  if (memory.defined())
    memory.fill_(value);
  else
    memory = full({}, value, {.dtype = DType::f64, .device = device});
  rates->written[group] = value;
  return memory;
}

void Optimizer::zero_grad(bool set_to_none) {
  for (ParameterState& each : states_)
    if (set_to_none)
      each.parameter.set_grad({});
    else
      autograd::zero_gradient_of(each.parameter);
}

std::vector<Tensor> Optimizer::parameters() const {
  std::vector<Tensor> all;
  for (const ParameterState& each : states_) all.push_back(each.parameter);
  return all;
}

void Optimizer::change_options(std::size_t group, const std::function<void()>& change) {
  std::vector<StateNames> former;
  for (const ParameterState& each : states_)
    former.push_back(each.group == group ? state_names(group, each.parameter) : StateNames());
  change();
  const auto had = [](const auto& states) {
    return static_cast<std::size_t>(std::ranges::count_if(states, &Tensor::defined));
  };
  bool is_any_dropped = false;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    if (states_[i].group != group) continue;
    ParameterState& each = states_[i];
    const auto states = std::exchange(each.state, {});
    const auto scales = std::exchange(each.scales, {});
    const StateNames names = state_names(group, each.parameter);
    bool keeps_any = names.empty();
    std::size_t kept = 0;
    for (std::size_t k = 0; k < names.size(); ++k) {
      const auto found = std::ranges::find(former[i], names[k]);
      if (found == former[i].end()) continue;
      const auto place = static_cast<std::size_t>(found - former[i].begin());
      each.state[k] = states[place];
      each.scales[k] = scales[place];
      keeps_any = true;
      kept += states[place].defined();
    }
    is_any_dropped |= kept < had(states) || (!keeps_any && each.counter.defined());
    if (!keeps_any) each.counter = {};
  }
  drops_ += is_any_dropped;
}

void Optimizer::set_lr(double lr, std::size_t group) {
  refuse_in_captured_step("a learning rate is set", "step an LRScheduler, or set it between steps");
  schedule_lr(lr, group);
  base_lr_[group] = lr;
}

void Optimizer::set_lr(double lr) {
  for (std::size_t group = 0; group < group_count(); ++group) set_lr(lr, group);
}

double Optimizer::base_lr(std::size_t group) const {
  LOCKSTEP_CHECK(group < group_count(), InvalidArgument, "parameter group ", group,
                 " of an optimizer that has ", group_count());
  return base_lr_[group];
}

}  // namespace lockstep::optim
