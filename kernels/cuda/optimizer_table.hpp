#pragma once

#include <utility>

#include "arguments/optimizer.hpp"
#include "cuda/chunk_table.hpp"
#include "cuda/launch.hpp"

/// @file
/// What the kernels of optimizers share: tables of tensors, and the steps that they count.

namespace lockstep::cuda_kernels {

using kernels::FlatArray;
using kernels::OptimizerArguments;
using kernels::OptimizerTensors;
using kernels::StepCounter;

inline constexpr int optimizer_threads = 256;

/// The arrays of a tensor in the table of a launch, in this order; the states come first.
enum Array { parameter_array = most_optimizer_states, gradient_array, master_array, arrays };
/// Beside them, what the tensor has one of.
enum { counter_pointer = arrays, carried_pointer, pointers };

inline const FlatArray& array_of(const OptimizerTensors& tensors, int k) {
  const FlatArray* const all[arrays] = {&tensors.state1,    &tensors.state2,   &tensors.state3,
                                        &tensors.parameter, &tensors.gradient, &tensors.master};
  return *all[k];
}

inline void* pointer_of(const OptimizerTensors& tensors, int k) {
  if (k == counter_pointer) return tensors.counter;
  if (k == carried_pointer) return tensors.carried;
  return array_of(tensors, k).data;
}

/// Calls `use.operator()<0, 1 ...>()` with as many numbers as the rule has states.
template <class Rule, int states = Rule::least_states, class Use>
void with_states(const Rule& rule, const Use& use) {
  if constexpr (states < Rule::most_states)
    if (rule.states() > states) return with_states<Rule, states + 1>(rule, use);
  [&]<int... k>(std::integer_sequence<int, k...>) { use.template operator()<k...>(); }
  (std::make_integer_sequence<int, states>());
}

/// One more block of a tensor has come here, and all that it did and read before is done. True for
/// the last of them, which then finds the tensor as it was before the launch.
__device__ inline bool arrive(StepCounter& counter, unsigned blocks) {
  __threadfence();
  if (atomicAdd(&counter.arrivals, 1ull) + 1 < blocks) return false;
  counter.arrivals = 0;
  return true;
}

/// A tensor's step, from 1, and its coefficients.
template <class Rule>
struct StepOfTensor {
  std::int64_t number;
  typename Rule::Coefficients coefficients;
};

/// The step of the block's tensor, for all threads of the block.
/// @param ends_step the last block to take it counts the step.
template <class Rule, class Table>
__device__ StepOfTensor<Rule> take_step(const Table& table, int tensor,
                                        const OptimizerArguments<Rule>& arguments, bool ends_step) {
  alignas(16) __shared__ unsigned char storage[sizeof(StepOfTensor<Rule>)];
  auto& shared = *reinterpret_cast<StepOfTensor<Rule>*>(storage);
  if (threadIdx.x == 0) {
    auto& counter = *static_cast<StepCounter*>(table.array[counter_pointer][tensor]);
    auto* const carried = static_cast<double*>(table.array[carried_pointer][tensor]);
    const std::int64_t step = counter.steps + 1;
    const auto own = arguments.coefficients(step, carried, table.first_tensor + tensor);
    shared = {step, own};
    if (ends_step && arrive(counter, table.chunks_of(tensor))) {
      counter.steps = step;
      if constexpr (requires { own.carried; }) *carried = own.carried;
    }
  }
  __syncthreads();
  return shared;
}

}  // namespace lockstep::cuda_kernels
