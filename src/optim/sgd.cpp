#include "lockstep/optim/sgd.hpp"

#include "optim/update.hpp"

namespace lockstep::optim {
namespace {

constexpr std::string_view state_names[] = {"momentum_buffer"};

void check(const SGDOptions& options) {
  LOCKSTEP_CHECK(options.lr >= 0 && options.momentum >= 0 && options.weight_decay >= 0,
                 InvalidArgument, "SGD: lr ", options.lr, ", momentum ", options.momentum,
                 " and weight_decay ", options.weight_decay, " must not be negative");
  LOCKSTEP_CHECK(!options.nesterov || (options.momentum > 0 && options.dampening == 0),
                 InvalidArgument, "SGD: nesterov needs a momentum above 0 and no dampening, got ",
                 options.momentum, " and ", options.dampening);
}

}  // namespace

SGD::SGD(const Groups& groups) : OptimizerWith(groups, state_names) {
  for (const auto& group : groups) check(group.options);
}

void SGD::update(std::size_t group, std::span<ParameterState* const> parameters,
                 std::int64_t step) {
  const SGDOptions& o = options(group);
  for (ParameterState* each : parameters) ensure_state(*each, 0, o.momentum != 0);
  kernels_of(parameters)
      .sgd(kernel_operands(parameters),
           {.lr = o.lr,
            .momentum = o.momentum,
            .dampening = o.dampening,
            .weight_decay = o.weight_decay,
            .nesterov = o.nesterov,
            .maximize = o.maximize,
            .first_step = step == 1},
           stream_of(parameters));
}

}  // namespace lockstep::optim
