#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/optim/optim.hpp>

#include "support/command_line.hpp"

/// @file
/// The optimizers that the training programs offer by name.

namespace examples {

/// What a command line says of the optimizer and of averages of the weights.
struct OptimizerChoice {
  std::string name = "adamw";
  double lr = 1e-3;
  std::optional<double> weight_decay = {};  ///< none: the optimizer's default
  std::optional<double> momentum = {};      ///< none: the optimizer's default, if it has one
  std::vector<double> betas = {};           ///< two, or none: the optimizer's defaults
  bool decay_all = true;                    ///< false: matrices alone
  double ema = 0.0;                         ///< decay of an average of the weights; 0: none
  std::string state = "full";               ///< what it remembers in: full, bf16 or 8bit
};

/// Adds --optimizer, --optimizer-state and --ema.
void add_optimizer_options(CLI::App& app, OptimizerChoice& choice);

/// A linear rise to the full rate before a schedule begins.
lockstep::optim::Schedule after_warmup(lockstep::optim::Schedule schedule, std::int64_t steps);

/// Makes the optimizer. Muon leaves embeddings, and all that is no matrix, to AdamW.
/// @param shards the ranks that share the parameters out, or null. @throws InvalidArgument for one
/// that has no such format of its states, or is not for shards.
std::unique_ptr<lockstep::optim::Optimizer> make_optimizer(
    const lockstep::NamedTensors& parameters, const OptimizerChoice& choice,
    const lockstep::CommunicatorPtr& shards = nullptr);

/// The average of the weights that --ema asks for, if it does.
std::optional<lockstep::optim::WeightAverage> make_average(const lockstep::NamedTensors& parameters,
                                                           const OptimizerChoice& choice);

}  // namespace examples
