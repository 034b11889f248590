#include "lockstep/nn/module.hpp"

#include <algorithm>
#include <map>
#include <unordered_set>

#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/leaf.hpp"

namespace lockstep::nn {
namespace {

/// Tells the first visit of each tensor from later ones.
class Seen {
 public:
  bool first(const Tensor& tensor) { return seen_.insert(&tensor.impl()).second; }

 private:
  std::unordered_set<const TensorImpl*> seen_;
};

std::string join(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + '.' + name;
}

void collect_modules(const std::string& name, Module& module,
                     std::vector<std::pair<std::string, Module*>>& out) {
  out.emplace_back(name, &module);
  for (const auto& [child_name, child] : module.children())
    collect_modules(join(name, child_name), *child, out);
}

void check_module_dtype(DType dtype) {
  LOCKSTEP_CHECK(is_floating(dtype), InvalidArgument, "a module cannot be converted to ", dtype,
                 "; only to floating dtypes");
}

/// The dtype of a tensor in a module of some dtype: integers stay, and buffers are f32 at least.
DType wanted_dtype(const Tensor& tensor, bool is_parameter, DType dtype) {
  if (!is_floating(tensor.dtype())) return tensor.dtype();
  return !is_parameter && dtype != DType::f64 ? DType::f32 : dtype;
}

bool has_sink(const Tensor& tensor) {
  return tensor.is_leaf() && tensor.impl().node &&
         static_cast<const autograd::LeafNode&>(*tensor.impl().node).has_sink();
}

}  // namespace

Module::~Module() {
  for (const auto& [name, child] : children_)
    if (child->parent_ == this) child->parent_ = nullptr;
}

std::string Module::path() const {
  std::string path;
  for (const Module* at = this; at->parent_; at = at->parent_)
    path = path.empty() ? at->name_ : at->name_ + '.' + path;
  return path;
}

std::uint64_t Module::add_call_hooks(CallHooks hooks) {
  call_hooks_.emplace_back(next_call_hook_, std::move(hooks));
  note_who_sees();
  return next_call_hook_++;
}

void Module::remove_call_hooks(std::uint64_t id) noexcept {
  std::erase_if(call_hooks_, [id](const auto& entry) { return entry.first == id; });
  note_who_sees();
}

std::uint64_t Module::call_hooks_signature() const noexcept {
  std::uint64_t signature = 0;
  for (const auto& [id, each] : call_hooks_) signature = signature * 0x9E3779B97F4A7C15u + id + 1;
  return signature;
}

void Module::note_who_sees() noexcept {
  is_seen_ = std::ranges::any_of(call_hooks_, [](const auto& entry) {
    return entry.second.before || entry.second.after || entry.second.replace;
  });
}

/// A hook may remove itself or another one, or add one, which what is still to come of the call
/// sees.
void Module::for_each_call_hook(HookOrder order, FunctionRef<void(const CallHooks&)> visit) const {
  std::vector<std::uint64_t> ids;
  for (const auto& [id, hooks] : call_hooks_) ids.push_back(id);
  if (order == HookOrder::last_first) std::ranges::reverse(ids);
  for (const std::uint64_t id : ids) {
    const auto found = std::ranges::find(call_hooks_, id, [](auto& each) { return each.first; });
    if (found == call_hooks_.end()) continue;
    const CallHooks hooks = found->second;
    visit(hooks);
  }
}

void Module::run_begin_hooks() {
  for_each_call_hook(HookOrder::first_first, [](const CallHooks& hooks) {
    if (hooks.begin) hooks.begin();
  });
}

void Module::run_before_hooks(std::span<const Tensor> arguments) {
  for_each_call_hook(HookOrder::first_first, [&](const CallHooks& hooks) {
    if (hooks.before) hooks.before(*this, arguments);
  });
}

void Module::run_after_hooks(std::span<const Tensor> results) {
  for_each_call_hook(HookOrder::last_first, [&](const CallHooks& hooks) {
    LOCKSTEP_CHECK(!hooks.replace, InvalidArgument, "a hook that replaces the result of ",
                   type_name(*this), ", whose forward does not give one Tensor");
    if (hooks.after) hooks.after(*this, results);
  });
}

Tensor Module::run_after_hooks(std::span<const Tensor> arguments, Tensor result) {
  for_each_call_hook(HookOrder::last_first, [&](const CallHooks& hooks) {
    if (hooks.replace) result = hooks.replace(*this, arguments, result);
    if (hooks.after) hooks.after(*this, {&result, 1});
  });
  return result;
}

void Module::visit(const std::string& prefix, Visitor visitor) const {
  for (const Entry& entry : entries_) visitor(join(prefix, entry.name), entry);
  for (const auto& [name, child] : children_) child->visit(join(prefix, name), visitor);
}

std::vector<Tensor> Module::parameters() const {
  std::vector<Tensor> found;
  for (auto& [name, tensor] : named_parameters()) found.push_back(tensor);
  return found;
}

NamedTensors Module::named_parameters(const std::string& prefix) const {
  NamedTensors found;
  Seen seen;
  visit(prefix, [&](const std::string& name, const Entry& entry) {
    if (entry.is_parameter && seen.first(entry.tensor)) found.emplace_back(name, entry.tensor);
  });
  return found;
}

NamedTensors Module::named_buffers() const {
  NamedTensors found;
  Seen seen;
  visit("", [&](const std::string& name, const Entry& entry) {
    if (!entry.is_parameter && seen.first(entry.tensor)) found.emplace_back(name, entry.tensor);
  });
  return found;
}

std::vector<std::pair<std::string, Module*>> Module::named_modules() {
  std::vector<std::pair<std::string, Module*>> found;
  collect_modules("", *this, found);
  return found;
}

std::vector<std::pair<std::string, std::string>> Module::aliases() const {
  std::map<const TensorImpl*, std::string> first_names;
  std::vector<std::pair<std::string, std::string>> found;
  visit("", [&](const std::string& name, const Entry& entry) {
    const auto [place, is_first] = first_names.emplace(&entry.tensor.impl(), name);
    if (!is_first) found.emplace_back(name, place->second);
  });
  return found;
}

std::int64_t Module::parameter_count() const {
  std::int64_t count = 0;
  for (const Tensor& parameter : parameters()) count += parameter.numel();
  return count;
}

void Module::train(bool training) {
  apply([training](Module& module) { module.training_ = training; });
}

void Module::convert(FunctionRef<Tensor(const Entry&)> converted) {
  const NoGradGuard no_recording;
  const auto convert_those = [&](bool with_sink) {
    visit("", [&](const std::string&, const Entry& entry) {
      if (has_sink(entry.tensor) != with_sink) return;
      const Tensor value = converted(entry);
      if (!value.is_same(entry.tensor)) Tensor(entry.tensor).set_data(value);
    });
  };
  // What gives gradients their memory may refuse, as a wrapper does: then nothing has changed yet.
  convert_those(true);
  convert_those(false);
}

void Module::to(Device device) {
  convert([device](const Entry& entry) { return entry.tensor.to(device); });
}

void Module::to(DType dtype) {
  check_module_dtype(dtype);
  convert([dtype](const Entry& entry) {
    return entry.tensor.to(wanted_dtype(entry.tensor, entry.is_parameter, dtype));
  });
}

void Module::to(Device device, DType dtype) {
  check_module_dtype(dtype);
  convert([device, dtype](const Entry& entry) {
    return entry.tensor.to(device, wanted_dtype(entry.tensor, entry.is_parameter, dtype));
  });
}

void Module::zero_grad(bool set_to_none) {
  for (const Tensor& parameter : parameters()) {
    if (set_to_none)
      Tensor(parameter).set_grad({});
    else
      autograd::zero_gradient_of(parameter);
  }
}

void Module::requires_grad_(bool required) {
  for (Tensor& parameter : parameters()) parameter.set_requires_grad(required);
}

void Module::apply(FunctionRef<void(Module&)> function) {
  for (const auto& [name, child] : children_) child->apply(function);
  function(*this);
}

void Module::check_name(std::string_view name) const {
  LOCKSTEP_CHECK(!name.empty() && name.find('.') == std::string_view::npos, InvalidArgument, "\"",
                 name,
                 "\" cannot name a member of a module: names are not empty and have "
                 "no dot");
  bool taken = false;
  for (const Entry& entry : entries_) taken |= entry.name == name;
  for (const auto& [child_name, child] : children_) taken |= child_name == name;
  LOCKSTEP_CHECK(!taken, InvalidArgument, "the module already has a member \"", name, "\"");
}

Tensor Module::register_parameter(std::string_view name, Tensor value) {
  check_name(name);
  if (!value.defined()) return value;
  LOCKSTEP_CHECK(value.is_leaf(), InvalidArgument, "parameter \"", name,
                 "\" was computed by recorded ops; register a detached tensor");
  value.set_requires_grad();
  entries_.push_back({std::string(name), value, true, true});
  return value;
}

Tensor Module::register_buffer(std::string_view name, Tensor value, bool persistent) {
  check_name(name);
  if (!value.defined()) return value;
  LOCKSTEP_CHECK(!value.requires_grad(), InvalidArgument, "buffer \"", name,
                 "\" requires a gradient; register it as a parameter, or detach() it");
  entries_.push_back({std::string(name), value, false, persistent});
  return value;
}

void Module::register_module(std::string_view name, IntrusivePtr<Module> child) {
  check_name(name);
  LOCKSTEP_CHECK(child, InvalidArgument, "child \"", name, "\" is empty");
  for (const Module* at = this; at; at = at->parent_)
    LOCKSTEP_CHECK(child.get() != at, InvalidArgument, "child \"", name,
                   "\" is the module itself, or one that it is part of");
  if (!child->parent_) {
    child->parent_ = this;
    child->name_ = name;
  }
  children_.emplace_back(name, std::move(child));
}

}  // namespace lockstep::nn
