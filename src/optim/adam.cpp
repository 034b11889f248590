#include "lockstep/optim/adam.hpp"

#include <type_traits>

#include "optim/option_checks.hpp"
#include "optim/update.hpp"

namespace lockstep::optim {
namespace {

constexpr std::string_view adam_states[] = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};

template <class Options>
void check_adam(std::string_view name, const Options& options) {
  check_not_negative(
      name, {{"lr", options.lr}, {"eps", options.eps}, {"weight_decay", options.weight_decay}});
  check_decay_rates(name, {{"beta1", options.beta1}, {"beta2", options.beta2}});
  check_rounding(name, options.stochastic_rounding, options.master_weights);
}

}  // namespace

void AdamOptions::check() const { check_adam("Adam", *this); }
void AdamWOptions::check() const { check_adam("AdamW", *this); }

template <class Options>
StateNames AdamFamily<Options>::state_names(std::size_t group, const Tensor&) const {
  return StateNames(adam_states).first(this->options(group).amsgrad ? 3 : 2);
}

template <class Options>
void AdamFamily<Options>::update(std::size_t group, std::span<ParameterState* const> parameters,
                                 const StepScalars& scalars) {
  const Options& o = this->options(group);
  run_rule(&kernels::OptimizerKernels::adam,
           {.beta1 = o.beta1,
            .beta2 = o.beta2,
            .eps = o.eps,
            .weight_decay = o.weight_decay,
            .decoupled_decay = std::is_same_v<Options, AdamWOptions>,
            .amsgrad = o.amsgrad,
            .maximize = o.maximize},
           parameters, scalars);
}

template class AdamFamily<AdamOptions>;
template class AdamFamily<AdamWOptions>;

}  // namespace lockstep::optim
