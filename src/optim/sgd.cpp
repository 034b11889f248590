#include "lockstep/optim/sgd.hpp"

#include "optim/update.hpp"

namespace lockstep::optim {
namespace {

constexpr std::string_view state_names[] = {"momentum_buffer"};

}  // namespace

void SGDOptions::check() const {
  LOCKSTEP_CHECK(lr >= 0 && momentum >= 0 && weight_decay >= 0, InvalidArgument, "SGD: lr ", lr,
                 ", momentum ", momentum, " and weight_decay ", weight_decay,
                 " must not be negative");
  LOCKSTEP_CHECK(!nesterov || (momentum > 0 && dampening == 0), InvalidArgument,
                 "SGD: nesterov needs a momentum above 0 and no dampening, got ", momentum, " and ",
                 dampening);
}

SGD::SGD(const Groups& groups) : OptimizerWith(groups, state_names) {}

std::size_t SGD::states_used(std::size_t group) const { return options(group).momentum != 0; }

void SGD::update(std::size_t group, std::span<ParameterState* const> parameters,
                 const StepScalars& scalars) {
  const SGDOptions& o = options(group);
  const auto tensors = kernel_operands(parameters);
  kernels_of(parameters)
      .sgd({.tensors = tensors,
            .state = state_of(scalars),
            .rule = {.momentum = o.momentum,
                     .dampening = o.dampening,
                     .weight_decay = o.weight_decay,
                     .nesterov = o.nesterov,
                     .maximize = o.maximize}},
           stream_of(parameters));
}

}  // namespace lockstep::optim
