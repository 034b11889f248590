#include "lockstep/optim/sgd.hpp"

#include "optim/option_checks.hpp"
#include "optim/update.hpp"

namespace lockstep::optim {
namespace {

constexpr std::string_view sgd_states[] = {"momentum_buffer"};

}  // namespace

void SGDOptions::check() const {
  check_not_negative("SGD", {{"lr", lr}, {"momentum", momentum}, {"weight_decay", weight_decay}});
  check_rounding("SGD", stochastic_rounding, master_weights);
  LOCKSTEP_CHECK(!nesterov || (momentum > 0 && dampening == 0), InvalidArgument,
                 "SGD: nesterov needs a momentum above 0 and no dampening, got ", momentum, " and ",
                 dampening);
}

StateNames SGD::state_names(std::size_t group, const Tensor&) const {
  return StateNames(sgd_states).first(options(group).momentum != 0);
}

void SGD::update(std::size_t group, std::span<ParameterState* const> parameters,
                 const StepScalars& scalars) {
  const SGDOptions& o = options(group);
  run_rule(&kernels::OptimizerKernels::sgd,
           {.momentum = o.momentum,
            .dampening = o.dampening,
            .weight_decay = o.weight_decay,
            .nesterov = o.nesterov,
            .maximize = o.maximize},
           parameters, scalars);
}

}  // namespace lockstep::optim
