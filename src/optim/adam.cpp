#include "lockstep/optim/adam.hpp"

#include <type_traits>

#include "optim/update.hpp"

namespace lockstep::optim {
namespace {

constexpr std::string_view state_names[] = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};

template <class Options>
void check_adam(const Options& options) {
  LOCKSTEP_CHECK(options.lr >= 0 && options.eps >= 0 && options.weight_decay >= 0, InvalidArgument,
                 "Adam: lr ", options.lr, ", eps ", options.eps, " and weight_decay ",
                 options.weight_decay, " must not be negative");
  for (const double beta : {options.beta1, options.beta2})
    LOCKSTEP_CHECK(beta >= 0 && beta < 1, InvalidArgument, "Adam: beta ", beta,
                   " is outside [0, 1)");
}

}  // namespace

void AdamOptions::check() const { check_adam(*this); }
void AdamWOptions::check() const { check_adam(*this); }

template <class Options>
AdamFamily<Options>::AdamFamily(const Groups& groups)
    : OptimizerWith<Options>(groups, state_names) {}

template <class Options>
std::size_t AdamFamily<Options>::states_used(std::size_t group) const {
  return this->options(group).amsgrad ? 3 : 2;
}

template <class Options>
void AdamFamily<Options>::update(std::size_t group, std::span<ParameterState* const> parameters,
                                 const StepScalars& scalars) {
  const Options& o = this->options(group);
  const auto tensors = kernel_operands(parameters);
  kernels_of(parameters)
      .adam({.tensors = tensors,
             .state = state_of(scalars),
             .rule = {.beta1 = o.beta1,
                      .beta2 = o.beta2,
                      .eps = o.eps,
                      .weight_decay = o.weight_decay,
                      .decoupled_decay = std::is_same_v<Options, AdamWOptions>,
                      .amsgrad = o.amsgrad,
                      .maximize = o.maximize}},
            stream_of(parameters));
}

template class AdamFamily<AdamOptions>;
template class AdamFamily<AdamWOptions>;

}  // namespace lockstep::optim
