#include "lockstep/optim/lamb.hpp"
#include "lockstep/optim/lars.hpp"
#include "lockstep/parallel/tensor_work.hpp"
#include "lockstep/tensor/factories.hpp"
#include "optim/option_checks.hpp"
#include "optim/update.hpp"

namespace lockstep::optim {
namespace {

constexpr std::string_view lars_states[] = {"momentum_buffer"};
constexpr std::string_view lamb_states[] = {"exp_avg", "exp_avg_sq"};

/// Two passes over the parameters: one for their squares, which are summed over the ranks that
/// share them out, and the update.
template <class Rule>
void run_layerwise(OptimizerEntry<Rule> measure, OptimizerEntry<Rule> entry,
                   const std::type_identity_t<Rule>& rule,
                   std::span<ParameterState* const> parameters, const StepScalars& scalars,
                   Communicator* shards) {
  const Device device = parameters[0]->parameter.device();
  const auto tensors = kernel_operands(parameters);
  const kernels::OptimizerKernels& kernels = backend::optimizers_of(device);
  Tensor squares = zeros({static_cast<std::int64_t>(tensors.size()), 2}, {DType::f64, device});
  kernels::OptimizerArguments<Rule> arguments{
      .tensors = tensors, .state = state_of(scalars), .rule = rule, .squares = number_in(squares)};
  (kernels.*measure)(arguments, current_stream(device));
  if (shards)
    squares =
        parallel::all_reduce_async(squares, *shards, comm::ReduceOp::sum(), "squares of layers")
            .wait();
  arguments.squares = number_in(squares);
  (kernels.*entry)(arguments, current_stream(device));
}

}  // namespace

void LARSOptions::check() const {
  check_not_negative("LARS", {{"lr", lr},
                              {"momentum", momentum},
                              {"weight_decay", weight_decay},
                              {"trust_coefficient", trust_coefficient},
                              {"eps", eps}});
  check_rounding("LARS", stochastic_rounding, master_weights);
}

StateNames LARS::state_names(std::size_t, const Tensor&) const { return lars_states; }

void LARS::update(std::size_t group, std::span<ParameterState* const> parameters,
                  const StepScalars& scalars) {
  const LARSOptions& o = options(group);
  run_layerwise(&kernels::OptimizerKernels::lars_measure, &kernels::OptimizerKernels::lars,
                {.momentum = o.momentum,
                 .weight_decay = o.weight_decay,
                 .trust_coefficient = o.trust_coefficient,
                 .eps = o.eps,
                 .adapt = o.adapt,
                 .maximize = o.maximize},
                parameters, scalars, shards_of(group));
}

void LAMBOptions::check() const {
  check_not_negative("LAMB", {{"lr", lr}, {"eps", eps}, {"weight_decay", weight_decay}});
  check_decay_rates("LAMB", {{"beta1", beta1}, {"beta2", beta2}});
  check_rounding("LAMB", stochastic_rounding, master_weights);
}

StateNames LAMB::state_names(std::size_t, const Tensor&) const { return lamb_states; }

void LAMB::update(std::size_t group, std::span<ParameterState* const> parameters,
                  const StepScalars& scalars) {
  const LAMBOptions& o = options(group);
  run_layerwise(&kernels::OptimizerKernels::lamb_measure, &kernels::OptimizerKernels::lamb,
                {.beta1 = o.beta1,
                 .beta2 = o.beta2,
                 .eps = o.eps,
                 .weight_decay = o.weight_decay,
                 .adapt = o.adapt,
                 .maximize = o.maximize},
                parameters, scalars, shards_of(group));
}

}  // namespace lockstep::optim
