#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/tensor/factories.hpp"
#include "optim/late_values.hpp"
#include "optim/state_format.hpp"
#include "optim/state_reader.hpp"
#include "tensor/ownership.hpp"

namespace lockstep::optim {
namespace {

Tensor saved_number(double value) { return full({}, value, {.dtype = DType::f64}); }

Tensor saved_integer(std::int64_t value) {
  return from_span<std::int64_t>(std::span<const std::int64_t>(&value, 1), {});
}

/// Tells states apart by names, shapes and values, of large tensors those at both ends, whatever
/// order they stand in. The values of shards differ between ranks that load one state, and those
/// of `late` memory are not there yet: neither count.
std::uint64_t fingerprint(const NamedTensors& state, bool is_of_shards,
                          const std::set<const Storage*>& late) {
  constexpr std::int64_t longest_end = 1024;
  std::uint64_t sum = 0;
  for (const auto& [name, value] : state) {
    if (!value.defined()) continue;  // refused by whoever reads it
    std::string text = detail::concat(name, ' ', value.dtype(), ' ');
    if (is_of_shards && value.dim() > 0) {
      sum += std::hash<std::string>{}(text);
      continue;
    }
    text += detail::concat(value.shape());
    if (late.contains(value.impl().storage.get())) {
      sum += std::hash<std::string>{}(text);
      continue;
    }
    const Tensor flat = value.reshape({-1});
    const std::int64_t count = flat.numel(), end = std::min(count, longest_end);
    for (const Tensor& part : {flat.slice(0, 0, end), flat.slice(0, count - end, count)}) {
      const Tensor host = part.to(cpu).contiguous();
      text.append(static_cast<const char*>(host.data_ptr()), host.nbytes());
    }
    sum += std::hash<std::string>{}(text);
  }
  return sum;
}

/// A tensor on another device than a value: a state that is there, which gets it later, or a copy.
/// @param own those that are not kept yet
Tensor moved(StateReader& reader, Tensor value, Device device, std::vector<Tensor>& own) {
  const auto state = std::ranges::find_if(own, [&](const Tensor& each) {
    return each.defined() && each.device() == device && each.dtype() == value.dtype() &&
           each.shape() == value.shape() && reader.overwrites(each);
  });
  if (state == own.end()) return value.to(device);
  Tensor found = std::move(*state);
  own.erase(state);
  reader.copy_later(found, std::move(value));
  return found;
}

/// A tensor that the optimizer may write to: the one that is given if nobody else has it, nor more
/// memory lies behind it, or if it is a state of its own already, under whatever name.
/// @param own those that are not kept yet
Tensor kept(Tensor value, std::vector<Tensor>& own) {
  const auto state =
      std::ranges::find_if(own, [&](const Tensor& each) { return is_same_memory(value, each); });
  if (state != own.end()) {
    own.erase(state);
    return value;
  }
  const Storage& memory = *value.impl().storage;
  const bool can_be_kept = is_sole_owner(value) && value.is_contiguous() && memory.owns_memory() &&
                           memory.bytes() == value.nbytes() && !value.requires_grad();
  return can_be_kept ? value : value.clone();
}

// Before the name of the optimizer's class: others have the same states and options, which mean
// something else there (AdamW's and Adam's weight_decay).
constexpr std::string_view kind_prefix = "groups.kind.";

std::string group_prefix(std::size_t group) { return "groups." + std::to_string(group) + '.'; }

}  // namespace

std::string Optimizer::key_of(std::size_t parameter) const {
  const std::string& name = states_[parameter].name;
  return (name.empty() ? std::to_string(parameter) : name) + '.';
}

void Optimizer::check_distinguishable() const {
  if (group_count() == 1) return;
  for (const ParameterState& each : states_)
    LOCKSTEP_CHECK(!each.name.empty(), InvalidArgument,
                   "the state of an optimizer with several groups needs the names of its "
                   "parameters, or exchanged groups would load into each other; give it "
                   "named_parameters()");
}

NamedTensors Optimizer::state_dict() const { return saved_state(false); }

NamedTensors Optimizer::even_state_dict() const { return saved_state(true); }

/// What a parameter has before its first step, or while other options count anew, which leaves its
/// master what it was. @param with_states zeros for them
void Optimizer::add_unused_state(NamedTensors& state, const std::string& key, ParameterState each,
                                 bool with_states) const {
  const Tensor& parameter = each.parameter;
  const DType dtype = state_dtype(parameter.dtype());
  const Device device = parameter.device();
  if (with_states) {
    for (const std::string_view name : state_names(each.group, parameter))
      state.emplace_back(key + std::string(name),
                         zeros(state_shape(parameter, name), {dtype, device}));
    if (!carried_name().empty())
      state.emplace_back(key + std::string(carried_name()), zeros({}, {DType::f64, device}));
  }
  if (dtype == parameter.dtype() || !uses_master_weights(each.group)) return;
  if (each.master.defined()) prepare(each, true);
  state.emplace_back(key + "master",
                     each.master.defined() ? each.master : parameter.detach().to(dtype));
}

NamedTensors Optimizer::saved_state(bool is_even) const {
  check_distinguishable();
  const NoGradGuard no_recording;
  NamedTensors state;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    ParameterState each = states_[i];
    const std::string key = key_of(i);
    check_state_names(state_names(each.group, each.parameter));
    state.emplace_back(key + "group", saved_integer(static_cast<std::int64_t>(each.group)));
    const std::int64_t steps =
        each.counter.defined() ? static_cast<std::int64_t>(each.counter.slice(0, 0, 1).item()) : 0;
    state.emplace_back(key + "step", saved_integer(steps));
    if (steps == 0) {
      check_unused(each);
      const bool keeps_master = each.master.defined() && !each.counter.defined();
      if (is_even || keeps_master) add_unused_state(state, key, each, is_even);
      continue;
    }
    prepare(each, true);  // the parameter may have been moved, or written to, since its last update
    const StateNames names = state_names(each.group, each.parameter);
    for (std::size_t k = 0; k < names.size(); ++k)
      state.emplace_back(key + std::string(names[k]),
                         restored({each.state[k], each.scales[k]}, names[k]));
    if (each.carried.defined()) state.emplace_back(key + std::string(carried_name()), each.carried);
    if (each.master.defined()) state.emplace_back(key + "master", each.master);
  }
  state.emplace_back(detail::concat(kind_prefix, kind()), saved_integer(1));
  for (std::size_t group = 0; group < group_count(); ++group) {
    // Which group is which is known by the parameters in it, so one without any is left out.
    if (std::none_of(states_.begin(), states_.end(),
                     [&](const ParameterState& each) { return each.group == group; }))
      continue;
    const std::string prefix = group_prefix(group);
    state.emplace_back(prefix + "base_lr", saved_number(base_lr_[group]));
    for (const auto& [name, value] : named_options(group))
      state.emplace_back(prefix + std::string(name), saved_number(value));
  }
  return state;
}

/// Which saved group each group is, by the parameters in it; groups without parameters have none.
std::vector<std::optional<std::size_t>> Optimizer::match_groups(StateReader& reader) const {
  std::vector<std::optional<std::size_t>> saved(group_count());
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const std::size_t group = states_[i].group;
    const Tensor value = reader.take(key_of(i) + "group", {}, DType::i64);
    if (!value.defined()) continue;
    const auto found = static_cast<std::size_t>(value.item());
    if (!saved[group]) saved[group] = found;
    const bool alone = std::count(saved.begin(), saved.end(), found) == 1;
    if (saved[group] != found || !alone)
      reader.fault() << key_of(i) << "group: was in group " << found
                     << ", with other parameters than are in group " << group << " now";
  }
  return saved;
}

/// Takes over the options of all groups and reads the states that they call for.
std::vector<ParameterState> Optimizer::read_states(StateReader& reader) {
  for (const std::string& there : reader.take_names(kind_prefix))
    if (there != kind()) reader.fault() << "it is one of " << there << ", and this is " << kind();
  const auto saved = match_groups(reader);
  std::vector<double> base_lr = base_lr_;
  for (std::size_t group = 0; group < group_count(); ++group) {
    if (!saved[group]) continue;
    const std::string prefix = group_prefix(*saved[group]);
    base_lr[group] = reader.number(prefix + "base_lr", DType::f64, base_lr[group]);
    NamedOptions options = named_options(group);
    for (auto& [name, value] : options)
      value = reader.number(prefix + std::string(name), DType::f64, value);
    set_named_options(options, group);
  }
  for (const ParameterState& each : states_) {
    check_state_names(state_names(each.group, each.parameter));
    for (const Tensor& state : each.state) reader.may_overwrite(state);
    reader.may_overwrite(each.carried);
    reader.may_overwrite(each.master);
  }
  std::vector<ParameterState> loaded = states_;
  for (std::size_t i = 0; i < loaded.size(); ++i) read_state(reader, key_of(i), loaded[i]);
  reader.finish();
  reader.copy();
  base_lr_ = std::move(base_lr);
  return loaded;
}

/// @throws InvalidArgument where there are states, but no steps that made them.
void Optimizer::check_unused(const ParameterState& each) const {
  const StateNames names = state_names(each.group, each.parameter);
  for (std::size_t k = 0; k < names.size(); ++k)
    LOCKSTEP_CHECK(
        !each.state[k].defined() || each.scales[k].defined() || !any(each.state[k] != 0.0).item(),
        InvalidArgument, "the state ", names[k], " of parameter ", each.name,
        " has changed in no step: update() of this optimizer has to count them in "
        "ParameterState::counter, or its states would not be saved");
}

/// Keeps a state that was saved in full.
void Optimizer::keep(ParameterState& each, std::size_t k, const Tensor& value) const {
  const std::string_view name = state_names(each.group, each.parameter)[k];
  const StoredState kept = stored(value, name, format_for(state_format(each.group), value.numel()));
  each.state[k] = kept.values;
  each.scales[k] = kept.scales;
}

void Optimizer::read_state(StateReader& reader, const std::string& key,
                           ParameterState& each) const {
  const Tensor& parameter = each.parameter;
  const DType dtype = state_dtype(parameter.dtype());
  // Options that were loaded may have given them other places, or none.
  std::vector<Tensor> own(each.state.begin(), each.state.end());
  own.insert(own.end(), {each.carried, each.master});
  const auto take = [&](std::string_view name, const Shape& shape, DType type,
                        bool is_kept = true) {
    Tensor value = reader.take(key + std::string(name), shape, type);
    if (!value.defined()) return value;
    if (value.device() == parameter.device()) return kept(std::move(value), own);
    return is_kept ? moved(reader, std::move(value), parameter.device(), own)
                   : value.to(parameter.device());
  };
  const double steps = reader.number(key + "step", DType::i64, 0);
  if (steps < 0) reader.fault() << key << "step: " << steps << "; must not be negative";
  each.counter = {};
  each.state = {};
  each.scales = {};
  each.carried = {};
  each.master = {};
  each.written = {};
  const StateNames names = state_names(each.group, parameter);
  const bool has_master = dtype != parameter.dtype() && uses_master_weights(each.group);
  if (!has_master) reader.drop(key + "master");  // of parameters that were of fewer bits
  if (steps <= 0) {                              // `even_state_dict` has zeros
    for (const std::string_view name : names) reader.drop(key + std::string(name));
    if (!carried_name().empty()) reader.drop(key + std::string(carried_name()));
    if (has_master && reader.has(key + "master"))
      each.master = take("master", parameter.shape(), dtype);
    return;
  }
  each.counter = tensor<std::int64_t>({static_cast<std::int64_t>(steps), 0}).to(parameter.device());
  check_formats(each);
  for (std::size_t k = 0; k < names.size(); ++k) {
    const Shape shape = state_shape(parameter, names[k]);
    const bool is_full = format_for(state_format(each.group), numel(shape)) == StateFormat::full;
    const Tensor value = take(names[k], shape, dtype, is_full);
    if (!value.defined()) continue;
    keep(each, k, value);
  }
  if (!carried_name().empty()) each.carried = take(carried_name(), {}, DType::f64);
  if (has_master) each.master = take("master", parameter.shape(), dtype);
}

void Optimizer::read_pytorch_state(StateReader& reader, const std::string& key,
                                   ParameterState& each) const {
  const Tensor& parameter = each.parameter;
  const auto take = [&](std::string_view name, const Shape& shape, DType type) {
    const Tensor value = reader.take_any(key + std::string(name), shape);
    return value.defined() ? value.to(parameter.device(), type).clone() : value;
  };
  const StateNames names = state_names(each.group, parameter);
  check_formats(each);
  ParameterState loaded = each;
  loaded.counter = loaded.carried = loaded.master = {};
  loaded.state = loaded.scales = {};
  loaded.written = {};
  std::vector<std::string> missing;
  for (std::size_t k = 0; k < names.size(); ++k) {
    const Tensor value =
        take(names[k], state_shape(parameter, names[k]), state_dtype(parameter.dtype()));
    if (value.defined())
      keep(loaded, k, value);
    else
      missing.push_back(key + std::string(names[k]));
  }
  if (!carried_name().empty()) {
    loaded.carried = take(carried_name(), {}, DType::f64);
    if (!loaded.carried.defined()) missing.push_back(key + std::string(carried_name()));
  }
  const Tensor given = take("step", {}, DType::f64);
  // SGD keeps no count: a momentum shows that there was a step.
  const bool any_state = missing.size() < names.size() + (carried_name().empty() ? 0 : 1);
  const double steps = given.defined() ? given.item() : any_state ? 1.0 : 0.0;
  if (steps < 0) reader.fault() << key << "step: " << steps << "; must not be negative";
  if (steps > 0)
    for (const std::string& name : missing) reader.fault() << name << ": missing";
  if (steps > 0)
    loaded.counter =
        tensor<std::int64_t>({static_cast<std::int64_t>(steps), 0}).to(parameter.device());
  else
    loaded.carried = {}, loaded.state = loaded.scales = {};
  each = loaded;
}

void Optimizer::note_loaded(std::uint64_t state) noexcept {
  ++loads_;
  loaded_ = state;
  loaded_after_ = updates_;
}

void Optimizer::load_pytorch_state(const NamedTensors& state) {
  check_distinguishable();
  const NoGradGuard no_recording;
  const std::uint64_t known_by = fingerprint(state, has_shards(), {});
  StateReader reader(state);
  std::vector<ParameterState> loaded = states_;
  for (std::size_t i = 0; i < loaded.size(); ++i) read_pytorch_state(reader, key_of(i), loaded[i]);
  reader.finish();
  states_ = std::move(loaded);
  note_loaded(known_by);
}

std::set<const Storage*> Optimizer::state_memory() const {
  std::set<const Storage*> memory;
  const auto add = [&](const Tensor& state) {
    if (state.defined()) memory.insert(state.impl().storage.get());
  };
  for (const ParameterState& each : states_) {
    std::ranges::for_each(each.state, add);
    add(each.carried);
    add(each.master);
  }
  return memory;
}

void Optimizer::load_state_dict(NamedTensors state) {
  check_distinguishable();
  const NoGradGuard no_recording;
  std::vector<NamedOptions> before;
  for (std::size_t group = 0; group < group_count(); ++group)
    before.push_back(named_options(group));
  const std::uint64_t known_by =
      fingerprint(state, has_shards(),
                  LateValues::are_expected() ? state_memory() : std::set<const Storage*>());
  StateReader reader(std::move(state));
  try {
    states_ = read_states(reader);
  } catch (...) {
    for (std::size_t group = 0; group < group_count(); ++group)
      set_named_options(before[group], group);
    throw;
  }
  note_loaded(known_by);
}

/// A line for each option that is another in a state, of the groups that the parameters were in.
std::vector<std::string> Optimizer::other_options(const NamedTensors& state) const {
  const std::map<std::string, Tensor> saved(state.begin(), state.end());
  const auto number = [&](const std::string& key) {
    const auto found = saved.find(key);
    const bool is_number = found != saved.end() && found->second.defined() &&
                           found->second.numel() == 1 && found->second.dim() == 0;
    return is_number ? std::optional(found->second.to(DType::f64).item()) : std::nullopt;
  };
  std::vector<std::string> lines;
  for (const auto& [name, value] : state)
    if (name.starts_with(kind_prefix) && name.substr(kind_prefix.size()) != kind())
      lines.push_back(detail::concat("it is one of ", name.substr(kind_prefix.size()),
                                     ", and this is ", kind()));
  std::set<std::size_t> told;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const auto there = number(key_of(i) + "group");
    if (!there || !told.insert(states_[i].group).second) continue;
    NamedOptions options = named_options(states_[i].group);
    options.emplace_back("base_lr", base_lr_[states_[i].group]);
    for (const auto& [name, here] : options) {
      const auto key = group_prefix(static_cast<std::size_t>(*there)) + std::string(name);
      const auto value = number(key);
      if (value && *value != here)
        lines.push_back(detail::concat(key, ": ", *value, " there, ", here, " here stays"));
    }
  }
  return lines;
}

std::vector<std::string> Optimizer::load_matching_state(NamedTensors state) {
  try {
    load_state_dict(state);
    return {};
  } catch (const InvalidArgument&) {  // said below for each parameter
  }
  check_distinguishable();
  const NoGradGuard no_recording;
  std::map<std::string, NamedTensors> states;
  for (const auto& entry : state)
    states[entry.first.substr(0, entry.first.rfind('.') + 1)].push_back(entry);
  std::vector<std::string> left;
  std::vector<ParameterState> loaded = states_;
  for (std::size_t i = 0; i < loaded.size(); ++i) {
    const std::string key = key_of(i), master = key + "master";
    NamedTensors& of_this = states[key];
    // Saved of a parameter that needed none: the states count as they are.
    const Tensor& parameter = states_[i].parameter;
    if (const DType wide = state_dtype(parameter.dtype());
        wide != parameter.dtype() && uses_master_weights(states_[i].group) && !of_this.empty() &&
        std::ranges::find(of_this, master, &NamedTensors::value_type::first) == of_this.end())
      of_this.emplace_back(master, parameter.detach().to(wide));
    StateReader reader(of_this);
    reader.take(key + "group", {}, DType::i64);  // it stays in the one in which it is
    ParameterState each = states_[i];
    read_state(reader, key, each);
    const std::string fault = reader.first_fault();
    if (fault.empty())
      loaded[i] = std::move(each);
    else
      left.push_back(fault);
  }
  const std::vector<std::string> options = other_options(state);
  left.insert(left.end(), options.begin(), options.end());
  states_ = std::move(loaded);
  note_loaded(fingerprint(state, has_shards(), {}));
  return left;
}

}  // namespace lockstep::optim
