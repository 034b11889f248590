#include "lockstep/nn/lora.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>

#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/leaf.hpp"
#include "lockstep/autograd/ops/matmul.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/nn/dropout.hpp"
#include "lockstep/nn/init.hpp"
#include "lockstep/nn/linear.hpp"
#include "nn/describe.hpp"

namespace lockstep::nn {
namespace {

constexpr std::string_view down_name = "lora_A", up_name = "lora_B", dropout_name = "lora_dropout";

/// An adapter's B, which knows what the adapter counts.
class LoraUp : public Linear {
 public:
  LoraUp(const LinearOptions& options, double scale) : Linear(options), scale_(scale) {
    init::zeros_(weight);
  }
  double scale() const noexcept { return scale_; }
  std::string describe() const override { return text(Linear::describe(), ", scale=", scale_); }

 private:
  double scale_;
};

struct Adapter {
  ModulePtr<Linear> down;
  ModulePtr<LoraUp> up;
  ModulePtr<Dropout> dropout;

  /// `y`, what the layer gives for `x`, and the adapter's share.
  Tensor operator()(const Tensor& x, const Tensor& y) const {
    const DType dtype = down->weight.dtype();
    const Tensor narrow = down(dropout(x.to(dtype))) * up->scale();
    return y.dtype() == narrow.dtype() ? up(narrow, y) : y + up(narrow).to(y.dtype());
  }
};

/// A child's name, behind the last dot.
std::string_view last_part(std::string_view name) { return name.substr(name.rfind('.') + 1); }

template <class M>
M* child_of(const Module& module, std::string_view name) {
  for (const auto& [each, child] : module.children())
    if (each == name) return dynamic_cast<M*>(child.get());
  return nullptr;
}

std::string joined(const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

/// By the whole name, or its last parts.
bool is_named(std::string_view name, std::string_view target) {
  if (!name.ends_with(target)) return false;
  return name.size() == target.size() || name[name.size() - target.size() - 1] == '.';
}

void check_targets(const std::set<std::string>& there, const LoraOptions& options) {
  std::set<std::string> last_parts;
  for (const std::string& name : there) last_parts.emplace(last_part(name));
  LOCKSTEP_CHECK(!options.targets.empty(), InvalidArgument,
                 "add_lora without targets; the names of the linear layers end in ",
                 joined(last_parts));
  for (const std::string& target : options.targets)
    LOCKSTEP_CHECK(
        std::ranges::any_of(there, [&](const auto& name) { return is_named(name, target); }),
        InvalidArgument, "add_lora: no linear layer's name ends in \"", target,
        "\"; they end in: ", joined(last_parts));
}

void check_unwrapped(const Module& model) {
  for (const auto& [name, parameter] : model.named_parameters())
    LOCKSTEP_CHECK(!parameter.requires_grad() || !autograd::leaf_of(parameter).has_sink(),
                   InvalidArgument, "add_lora: ", name,
                   " is wrapped for data-parallel training; add adapters before");
}

void adapt(Linear& layer, const LoraOptions& options) {
  const DType dtype = layer.weight.dtype();
  const TensorOptions tensor{dtype == DType::f64 ? DType::f64 : DType::f32, layer.weight.device()};
  const std::int64_t in = layer.weight.size(1), out = layer.weight.size(0);
  const LinearOptions down{.in = in, .out = options.rank, .bias = false, .tensor = tensor};
  const LinearOptions up{.in = options.rank, .out = out, .bias = false, .tensor = tensor};
  const Adapter adapter{make<Linear>(down),
                        make<LoraUp>(up, options.alpha / static_cast<double>(options.rank)),
                        make<Dropout>(options.dropout)};
  layer.register_module(down_name, adapter.down.share());
  layer.register_module(up_name, adapter.up.share());
  layer.register_module(dropout_name, adapter.dropout.share());
  for (const auto& [name, child] : layer.children()) child->train(layer.is_training());
  layer.add_call_hooks(
      {.replace = [adapter](Module&, std::span<const Tensor> arguments, const Tensor& y) {
        return adapter(arguments[0], y);
      }});
}

/// A layer and its adapter.
struct Adapted {
  Linear* layer;
  Linear* down;
  LoraUp* up;
};

std::vector<Adapted> adapted_layers(Module& model) {
  std::vector<Adapted> found;
  std::set<const Module*> seen;
  for (const auto& [name, module] : model.named_modules()) {
    auto* const layer = dynamic_cast<Linear*>(module);
    if (!layer || !seen.insert(layer).second) continue;
    if (auto* const up = child_of<LoraUp>(*layer, up_name))
      found.push_back({layer, child_of<Linear>(*layer, down_name), up});
  }
  return found;
}

/// The parts of the state that adapters have, or the others.
NamedTensors state_of_adapters(Module& model, bool wanted) {
  std::set<const TensorImpl*> theirs;
  for (const Adapted& each : adapted_layers(model))
    for (const Linear* part : {each.down, static_cast<Linear*>(each.up)})
      theirs.insert(&part->weight.impl());
  NamedTensors state = model.named_state();
  std::erase_if(state,
                [&](const auto& entry) { return theirs.contains(&entry.second.impl()) != wanted; });
  return state;
}

/// A weight that something else has too cannot be changed for its layer alone.
void check_alone(Module& model, const std::vector<Adapted>& adapted) {
  std::map<const TensorImpl*, const Module*> layers;
  for (const Adapted& each : adapted) layers.emplace(&each.layer->weight.impl(), each.layer);
  for (const auto& [name, module] : model.named_modules())
    for (const auto& [own, tensor] : module->named_parameters()) {
      if (own.find('.') != std::string::npos) continue;  // a child's
      const auto found = layers.find(&tensor.impl());
      LOCKSTEP_CHECK(found == layers.end() || found->second == module, InvalidArgument,
                     "merged_state_dict: the weight of ", found->second->path(),
                     ", which has an adapter, is ", name, ".", own, " too");
    }
}

}  // namespace

std::int64_t add_lora(Module& model, const LoraOptions& options) {
  LOCKSTEP_CHECK(options.rank > 0, InvalidArgument, "add_lora: rank ", options.rank,
                 "; expected at least 1");
  LOCKSTEP_CHECK(options.dropout >= 0 && options.dropout <= 1, InvalidArgument,
                 "add_lora: dropout ", options.dropout, "; expected a share in [0, 1]");
  LOCKSTEP_CHECK(std::isfinite(options.alpha), InvalidArgument, "add_lora: alpha ", options.alpha,
                 "; expected a number");
  const std::vector<Adapted> adapted = adapted_layers(model);
  const auto is_adapter = [&](const Module* module) {
    return std::ranges::any_of(
        adapted, [&](const Adapted& each) { return module == each.down || module == each.up; });
  };
  std::set<std::string> there;
  std::vector<Linear*> chosen;
  for (const auto& [name, module] : model.named_modules()) {
    auto* const layer = dynamic_cast<Linear*>(module);
    if (!layer || is_adapter(layer)) continue;
    there.emplace(name);
    if (std::ranges::none_of(options.targets,
                             [&](const auto& target) { return is_named(name, target); }))
      continue;
    LOCKSTEP_CHECK(!child_of<Linear>(*layer, down_name), InvalidArgument, "add_lora: ", name,
                   " has an adapter already");
    if (std::ranges::find(chosen, layer) == chosen.end()) chosen.push_back(layer);
  }
  check_targets(there, options);
  check_unwrapped(model);
  std::vector<Tensor> trained;  // those of adapters that were there
  for (const Adapted& each : adapted)
    for (const Tensor& weight : {each.down->weight, each.up->weight})
      if (weight.requires_grad()) trained.push_back(weight);
  model.requires_grad_(false);
  for (Tensor& weight : trained) weight.set_requires_grad();
  for (Linear* layer : chosen) adapt(*layer, options);
  return std::ssize(chosen);
}

bool has_lora(const Module& model) {
  return std::ranges::any_of(model.children(), [](const auto& entry) {
    return dynamic_cast<const LoraUp*>(entry.second.get()) || has_lora(*entry.second);
  });
}

NamedTensors lora_state_dict(Module& model) {
  NamedTensors state = state_of_adapters(model, true);
  for (auto& [name, tensor] : state) tensor = tensor.detach();
  return state;
}

NamedTensors merged_state_dict(Module& model) {
  const NoGradGuard no_recording;
  std::map<const TensorImpl*, Tensor> merged;
  const std::vector<Adapted> adapted = adapted_layers(model);
  check_alone(model, adapted);
  for (const Adapted& each : adapted) {
    const Tensor &weight = each.layer->weight, &down = each.down->weight;
    const Tensor share = matmul(each.up->weight, down) * each.up->scale();
    merged.emplace(&weight.impl(), (weight.to(down.dtype()) + share).to(weight.dtype()));
  }
  NamedTensors state = state_of_adapters(model, false);
  for (auto& [name, tensor] : state) {
    const auto found = merged.find(&tensor.impl());
    tensor = found == merged.end() ? tensor.detach() : found->second;
  }
  return state;
}

}  // namespace lockstep::nn
