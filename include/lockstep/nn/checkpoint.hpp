#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/recomputation.hpp"
#include "lockstep/autograd/saved_tensor.hpp"
#include "lockstep/parallel/stragglers.hpp"

/// @file
/// Activation checkpointing: memory for time.

namespace lockstep::nn {

/// Runs a part of a model that keeps no activations for backward, which computes them again when it
/// comes there (Chen, Xu, Zhang and Guestrin 2016): `checkpoint([this](const Tensor& x) { return
/// block(x); }, x)`. As PyTorch's with use_reentrant=False.
///
/// Gradients are those of `function(inputs...)` to the last bit: it runs again with the same random
/// numbers of the thread's generator and under the same autocast, and running statistics of batch
/// norms move once. Gradients may be accumulated, parameters used several times, graphs retained,
/// and calls nested; inside a DistributedDataParallel the buckets leave as they do without it. What
/// comes again are the ops, and so also collectives among them. `autograd::grad` inside the
/// function is refused.
///
/// Values stay from the first op of the part that backward asks for until the op that needs them
/// has run; in a retained graph they stay with it. Without recording this is a call and no more.
/// @param function called now and in every backward; a copy of it lives as long as the graph, and
/// so must what it refers to. It has to do the same each time: what it reads besides the inputs
/// must not have changed, and modules must be in training or evaluation as they were. That is
/// checked of what recorded ops save, or take a gradient of (the operands of autograd::OpCall), of
/// these ops, which must have come the first time, and of the modes of dropout and batch norms; not
/// of what ops without a record read (`c` in `x * (c + 1)`), of masks and indices that are not
/// saved, of numbers, nor of what runs under a NoGradGuard. Ops may come the first time alone.
/// @param inputs tensors that it takes.
/// @return what the function returns.
/// @throws InvalidArgument, in backward, if an input or another tensor that an op reads was changed
/// in place since, or the function did otherwise than before.
template <class Function, std::derived_from<Tensor>... Inputs>
auto checkpoint(Function function, const Inputs&... inputs)
    -> std::invoke_result_t<Function&, const Inputs&...> {
  if (!grad_enabled()) return function(inputs...);
  struct Part {
    Function function;
    std::array<autograd::SavedTensor, sizeof...(Inputs)> inputs;
    std::array<bool, sizeof...(Inputs)> required;
    std::shared_ptr<parallel::StepTimes> times = parallel::StepTimes::current();
  };
  const auto part = std::make_shared<Part>(
      Part{std::move(function), {autograd::SavedTensor(inputs)...}, {inputs.requires_grad()...}});
  const auto recomputation = make_intrusive<autograd::Recomputation>([part] {
    const auto input = [&](std::size_t i) {
      const Tensor& saved = part->inputs[i].get();
      if (!saved.defined()) return saved;
      Tensor leaf = saved.detach();
      leaf.impl().exchanges = saved.impl().exchanges;  // the same values, for ops that read it
      leaf.set_requires_grad(part->required[i]);
      return leaf;
    };
    const parallel::StepTimes::Scope times(part->times);  // of its collectives
    [&]<std::size_t... I>(std::index_sequence<I...>) { part->function(input(I)...); }
    (std::index_sequence_for<Inputs...>());
  });
  const autograd::Recomputation::RecordGuard record(*recomputation);
  return part->function(inputs...);
}

}  // namespace lockstep::nn
