#include "lockstep/optim/signum.hpp"

#include "optim/option_checks.hpp"
#include "optim/update.hpp"

namespace lockstep::optim {
namespace {

constexpr std::string_view names[] = {"momentum_buffer"};

}  // namespace

void SignumOptions::check() const {
  check_not_negative("Signum", {{"lr", lr}, {"weight_decay", weight_decay}});
  check_decay_rates("Signum", {{"momentum", momentum}});
}

StateNames Signum::state_names(std::size_t, const Tensor&) const { return names; }

void Signum::update(std::size_t group, std::span<ParameterState* const> parameters,
                    const StepScalars& scalars) {
  const SignumOptions& o = options(group);
  run_rule(&kernels::OptimizerKernels::signum,
           {.momentum = o.momentum, .weight_decay = o.weight_decay}, parameters, scalars);
}

}  // namespace lockstep::optim
