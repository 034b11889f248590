#include "optim/all_optimizers.hpp"

#include <string_view>
#include <type_traits>

namespace lockstep::testing {
namespace {

/// Options from JSON. @throws InvalidArgument for a name that the options do not have.
template <class Options>
Options read_options(nlohmann::json json) {
  Options options;
  if (json.contains("betas")) {
    json["beta1"] = json["betas"][0];
    json["beta2"] = json["betas"][1];
    json.erase("betas");
  }
  if (json.contains("eps") && json["eps"].is_array()) {  // Adafactor's
    json["eps1"] = json["eps"][0];
    json["eps2"] = json["eps"][1];
    json.erase("eps");
  }
  if (json.contains("adjust_lr_fn")) {  // Muon's
    json["match_rms_adamw"] = json["adjust_lr_fn"] == "match_rms_adamw";
    json.erase("adjust_lr_fn");
  }
  Options::visit(options, [&](std::string_view name, auto& value) {
    const std::string key(name);
    if (!json.contains(key)) return;
    value = json[key].get<std::remove_reference_t<decltype(value)>>();
    json.erase(key);
  });
  if constexpr (requires { options.state_format; }) {
    options.state_format = json.value("state_format", optim::StateFormat::full);
    options.stochastic_rounding = json.value("stochastic_rounding", false);
    json.erase("state_format");
    json.erase("stochastic_rounding");
  }
  LOCKSTEP_CHECK(json.empty(), InvalidArgument, "unknown options: ", json.dump());
  return options;
}

template <class O>
AnyOptimizer any_optimizer(std::string name, nlohmann::json options) {
  const bool has_state_formats = requires(typename O::Options o) { o.state_format; }
  &&!options.contains("centered");
  return {std::move(name), std::move(options),
          [](const JsonGroups& groups) {
            typename O::Groups made;
            for (const auto& [parameters, json] : groups)
              made.push_back({parameters, read_options<typename O::Options>(json)});
            return std::make_unique<O>(made);
          },
          has_state_formats};
}

}  // namespace

const std::vector<AnyOptimizer>& all_optimizers() {
  using namespace optim;
  static const std::vector<AnyOptimizer> all = {
      any_optimizer<SGD>("SGD", {{"lr", 0.1}}),
      any_optimizer<SGD>("SGDWithMomentum", {{"lr", 0.05}, {"momentum", 0.9}, {"nesterov", true}}),
      any_optimizer<Adam>("Adam", {{"lr", 0.05}, {"weight_decay", 0.01}}),
      any_optimizer<Adam>("AMSGrad", {{"lr", 0.05}, {"amsgrad", true}}),
      any_optimizer<AdamW>("AdamW", {{"lr", 0.05}, {"weight_decay", 0.01}}),
      any_optimizer<NAdam>("NAdam", {{"lr", 0.05}}),
      any_optimizer<RAdam>("RAdam", {{"lr", 0.2}}),
      any_optimizer<Adamax>("Adamax", {{"lr", 0.05}}),
      any_optimizer<Adagrad>("Adagrad", {{"lr", 0.3}, {"initial_accumulator_value", 0.1}}),
      any_optimizer<RMSprop>("RMSprop", {{"lr", 0.05}}),
      any_optimizer<RMSprop>("RMSpropWithMomentum", {{"lr", 0.01}, {"momentum", 0.9}}),
      any_optimizer<RMSprop>("CenteredRMSprop", {{"lr", 0.05}, {"centered", true}}),
      any_optimizer<RMSprop>("CenteredRMSpropWithMomentum",
                             {{"lr", 0.01}, {"momentum", 0.9}, {"centered", true}}),
      any_optimizer<Lion>("Lion", {{"lr", 0.02}, {"weight_decay", 0.01}}),
      any_optimizer<LARS>("LARS", {{"lr", 1.0}, {"trust_coefficient", 0.02}}),
      any_optimizer<LAMB>("LAMB", {{"lr", 0.03}}),
      any_optimizer<Adafactor>("Adafactor", {{"lr", 0.1}}),
      any_optimizer<Muon>("Muon", {{"lr", 0.05}, {"weight_decay", 0.01}}),
  };
  return all;
}

}  // namespace lockstep::testing
