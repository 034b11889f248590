#include "lockstep/optim/adamax.hpp"
#include "lockstep/optim/nadam.hpp"
#include "lockstep/optim/radam.hpp"
#include "optim/option_checks.hpp"
#include "optim/update.hpp"

// Together, as each is a few lines: what compiling takes is the headers.

namespace lockstep::optim {
namespace {

constexpr std::string_view moments[] = {"exp_avg", "exp_avg_sq"};
constexpr std::string_view moment_and_largest[] = {"exp_avg", "exp_inf"};

}  // namespace

void NAdamOptions::check() const {
  check_not_negative("NAdam", {{"lr", lr},
                               {"eps", eps},
                               {"weight_decay", weight_decay},
                               {"momentum_decay", momentum_decay}});
  check_decay_rates("NAdam", {{"beta1", beta1}, {"beta2", beta2}});
  check_rounding("NAdam", stochastic_rounding, master_weights);
}

StateNames NAdam::state_names(std::size_t, const Tensor&) const { return moments; }

void NAdam::update(std::size_t group, std::span<ParameterState* const> parameters,
                   const StepScalars& scalars) {
  const NAdamOptions& o = options(group);
  run_rule(&kernels::OptimizerKernels::nadam,
           {.beta1 = o.beta1,
            .beta2 = o.beta2,
            .eps = o.eps,
            .weight_decay = o.weight_decay,
            .momentum_decay = o.momentum_decay,
            .decoupled_decay = o.decoupled_weight_decay,
            .maximize = o.maximize},
           parameters, scalars);
}

void RAdamOptions::check() const {
  check_not_negative("RAdam", {{"lr", lr}, {"eps", eps}, {"weight_decay", weight_decay}});
  check_decay_rates("RAdam", {{"beta1", beta1}, {"beta2", beta2}});
  check_rounding("RAdam", stochastic_rounding, master_weights);
}

StateNames RAdam::state_names(std::size_t, const Tensor&) const { return moments; }

void RAdam::update(std::size_t group, std::span<ParameterState* const> parameters,
                   const StepScalars& scalars) {
  const RAdamOptions& o = options(group);
  run_rule(&kernels::OptimizerKernels::radam,
           {.beta1 = o.beta1,
            .beta2 = o.beta2,
            .eps = o.eps,
            .weight_decay = o.weight_decay,
            .decoupled_decay = o.decoupled_weight_decay,
            .maximize = o.maximize},
           parameters, scalars);
}

void AdamaxOptions::check() const {
  check_not_negative("Adamax", {{"lr", lr}, {"eps", eps}, {"weight_decay", weight_decay}});
  check_decay_rates("Adamax", {{"beta1", beta1}, {"beta2", beta2}});
  check_rounding("Adamax", stochastic_rounding, master_weights);
}

StateNames Adamax::state_names(std::size_t, const Tensor&) const { return moment_and_largest; }

void Adamax::update(std::size_t group, std::span<ParameterState* const> parameters,
                    const StepScalars& scalars) {
  const AdamaxOptions& o = options(group);
  run_rule(&kernels::OptimizerKernels::adamax,
           {.beta1 = o.beta1,
            .beta2 = o.beta2,
            .eps = o.eps,
            .weight_decay = o.weight_decay,
            .maximize = o.maximize},
           parameters, scalars);
}

}  // namespace lockstep::optim
