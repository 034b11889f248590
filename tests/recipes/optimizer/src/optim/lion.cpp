#include "lockstep/optim/lion.hpp"

#include "optim/update.hpp"

namespace lockstep::optim {
namespace {

constexpr std::string_view state_names[] = {"momentum"};

}  // namespace

void LionOptions::check() const {
  LOCKSTEP_CHECK(lr >= 0 && weight_decay >= 0, InvalidArgument, "Lion: lr ", lr,
                 " and weight_decay ", weight_decay, " must not be negative");
  for (const double beta : {beta1, beta2})
    LOCKSTEP_CHECK(beta >= 0 && beta < 1, InvalidArgument, "Lion: beta ", beta,
                   " is outside [0, 1)");
}

Lion::Lion(const Groups& groups) : OptimizerWith(groups, state_names) {}

void Lion::update(std::size_t group, std::span<ParameterState* const> parameters,
                  const StepScalars& scalars) {
  const LionOptions& o = options(group);
  const auto tensors = kernel_operands(parameters);
  kernels_of(parameters)
      .lion({.tensors = tensors,
             .state = state_of(scalars),
             .rule = {.beta1 = o.beta1, .beta2 = o.beta2, .weight_decay = o.weight_decay}},
            stream_of(parameters));
}

}  // namespace lockstep::optim
