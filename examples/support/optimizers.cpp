#include "support/optimizers.hpp"

#include <functional>
#include <type_traits>
#include <utility>

namespace examples {
namespace {

namespace optim = lockstep::optim;
using lockstep::CommunicatorPtr, lockstep::NamedTensors;

optim::StateFormat state_format(const std::string& name) {
  if (name == "bf16") return optim::StateFormat::bf16;
  return name == "8bit" ? optim::StateFormat::blockwise_8bit : optim::StateFormat::full;
}

template <class O>
std::unique_ptr<optim::Optimizer> make(const NamedTensors& parameters,
                                       const OptimizerChoice& choice,
                                       const CommunicatorPtr& shards) {
  typename O::Options options;
  options.lr = choice.lr;
  if (choice.weight_decay) options.weight_decay = *choice.weight_decay;
  if constexpr (requires { options.momentum; })
    if (choice.momentum) options.momentum = *choice.momentum;
  if constexpr (requires { options.beta2; }) {
    if (choice.betas.size() == 2) {
      options.beta1 = choice.betas[0];
      options.beta2 = choice.betas[1];
    }
  }
  if constexpr (requires { options.state_format; })
    options.state_format = state_format(choice.state);
  else
    LOCKSTEP_CHECK(choice.state == "full", lockstep::InvalidArgument, "--optimizer ", choice.name,
                   " has states in full only");
  if constexpr (requires { options.adamw; }) {
    auto aside = options;
    aside.adamw = true;
    auto split = optim::split_parameters(parameters, optim::with_name({"wte", "wpe", "embed"}));
    auto groups = choice.decay_all ? typename O::Groups{{split.others, options}}
                                   : optim::decay_groups(split.others, options);
    groups.push_back({split.chosen, aside});
    return std::make_unique<O>(groups);
  }
  const auto groups = choice.decay_all ? typename O::Groups{{parameters, options}}
                                       : optim::decay_groups(parameters, options);
  if constexpr (std::is_constructible_v<O, const typename O::Groups&, CommunicatorPtr>)
    return std::make_unique<O>(groups, shards);
  else
    return std::make_unique<O>(groups);
}

using Maker = std::unique_ptr<optim::Optimizer> (*)(const NamedTensors&, const OptimizerChoice&,
                                                    const CommunicatorPtr&);

const std::vector<std::pair<std::string, Maker>>& makers() {
  static const std::vector<std::pair<std::string, Maker>> all = {
      {"adafactor", make<optim::Adafactor>},
      {"adagrad", make<optim::Adagrad>},
      {"adam", make<optim::Adam>},
      {"adamax", make<optim::Adamax>},
      {"adamw", make<optim::AdamW>},
      {"lamb", make<optim::LAMB>},
      {"lars", make<optim::LARS>},
      {"lion", make<optim::Lion>},
      {"muon", make<optim::Muon>},
      {"nadam", make<optim::NAdam>},
      {"radam", make<optim::RAdam>},
      {"rmsprop", make<optim::RMSprop>},
      {"sgd", make<optim::SGD>}};
  return all;
}

}  // namespace

void add_optimizer_options(CLI::App& app, OptimizerChoice& choice) {
  std::vector<std::string> names;
  for (const auto& [name, maker] : makers()) names.push_back(name);
  app.add_option("--optimizer", choice.name, "adamw or another; give it a --lr that suits it")
      ->check(CLI::IsMember(names));
  app.add_option("--optimizer-state", choice.state,
                 "What the optimizer remembers in: full is f32, 8bit has a scale for 256 elements")
      ->check(CLI::IsMember({"full", "bf16", "8bit"}));
  app.add_option("--ema", choice.ema,
                 "Evaluate and save an average of the weights with this decay; 0: none")
      ->check(below_one());
}

optim::Schedule after_warmup(optim::Schedule schedule, std::int64_t steps) {
  if (steps == 0) return schedule;
  const optim::LinearLR warmup{.start_factor = 1.0 / static_cast<double>(steps + 1),
                               .iterations = steps};
  return optim::SequentialLR{{warmup, std::move(schedule)}, {steps}};
}

std::unique_ptr<optim::Optimizer> make_optimizer(const NamedTensors& parameters,
                                                 const OptimizerChoice& choice,
                                                 const CommunicatorPtr& shards) {
  for (const auto& [name, maker] : makers())
    if (name == choice.name) return maker(parameters, choice, shards);
  LOCKSTEP_THROW(lockstep::InvalidArgument, "no optimizer is called \"", choice.name, "\"");
}

std::optional<optim::WeightAverage> make_average(const NamedTensors& parameters,
                                                 const OptimizerChoice& choice) {
  using Average = std::optional<optim::WeightAverage>;
  if (choice.ema == 0) return Average();
  return Average(std::in_place, parameters, optim::WeightAverageOptions{.decay = choice.ema});
}

}  // namespace examples
