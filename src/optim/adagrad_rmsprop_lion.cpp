#include "lockstep/optim/adagrad.hpp"
#include "lockstep/optim/lion.hpp"
#include "lockstep/optim/rmsprop.hpp"
#include "optim/option_checks.hpp"
#include "optim/update.hpp"

// Together, as each is a few lines: what compiling takes is the headers.

namespace lockstep::optim {
namespace {

constexpr std::string_view adagrad_states[] = {"sum"};
constexpr std::string_view lion_states[] = {"exp_avg"};
// The first of these, or all but the second.
constexpr std::string_view rmsprop_states[] = {"square_avg", "grad_avg", "momentum_buffer"};
constexpr std::string_view rmsprop_momentum[] = {"square_avg", "momentum_buffer"};

}  // namespace

void AdagradOptions::check() const {
  check_not_negative("Adagrad", {{"lr", lr},
                                 {"lr_decay", lr_decay},
                                 {"weight_decay", weight_decay},
                                 {"initial_accumulator_value", initial_accumulator_value},
                                 {"eps", eps}});
  check_rounding("Adagrad", stochastic_rounding, master_weights);
}

StateNames Adagrad::state_names(std::size_t, const Tensor&) const { return adagrad_states; }

void Adagrad::update(std::size_t group, std::span<ParameterState* const> parameters,
                     const StepScalars& scalars) {
  const AdagradOptions& o = options(group);
  run_rule(&kernels::OptimizerKernels::adagrad,
           {.lr_decay = o.lr_decay,
            .weight_decay = o.weight_decay,
            .initial_accumulator_value = o.initial_accumulator_value,
            .eps = o.eps,
            .maximize = o.maximize},
           parameters, scalars);
}

void RMSpropOptions::check() const {
  check_not_negative(
      "RMSprop",
      {{"lr", lr}, {"eps", eps}, {"weight_decay", weight_decay}, {"momentum", momentum}});
  check_decay_rates("RMSprop", {{"alpha", alpha}});
  check_rounding("RMSprop", stochastic_rounding, master_weights);
  LOCKSTEP_CHECK(!centered || state_format == StateFormat::full, InvalidArgument,
                 "RMSprop: centered takes the difference of two states that are nearly equal, of "
                 "which state_format ",
                 name_of(state_format), " leaves nothing; it needs full");
}

StateNames RMSprop::state_names(std::size_t group, const Tensor&) const {
  const RMSpropOptions& o = options(group);
  if (o.momentum != 0 && !o.centered) return rmsprop_momentum;
  return StateNames(rmsprop_states).first(o.momentum != 0 ? 3 : o.centered ? 2 : 1);
}

void RMSprop::update(std::size_t group, std::span<ParameterState* const> parameters,
                     const StepScalars& scalars) {
  const RMSpropOptions& o = options(group);
  run_rule(&kernels::OptimizerKernels::rmsprop,
           {.alpha = o.alpha,
            .eps = o.eps,
            .weight_decay = o.weight_decay,
            .momentum = o.momentum,
            .centered = o.centered,
            .maximize = o.maximize},
           parameters, scalars);
}

void LionOptions::check() const {
  check_not_negative("Lion", {{"lr", lr}, {"weight_decay", weight_decay}});
  check_decay_rates("Lion", {{"beta1", beta1}, {"beta2", beta2}});
  check_rounding("Lion", stochastic_rounding, master_weights);
}

StateNames Lion::state_names(std::size_t, const Tensor&) const { return lion_states; }

void Lion::update(std::size_t group, std::span<ParameterState* const> parameters,
                  const StepScalars& scalars) {
  const LionOptions& o = options(group);
  run_rule(
      &kernels::OptimizerKernels::lion,
      {.beta1 = o.beta1, .beta2 = o.beta2, .weight_decay = o.weight_decay, .maximize = o.maximize},
      parameters, scalars);
}

}  // namespace lockstep::optim
