#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/checkpoint/state.hpp"
#include "lockstep/nn/module_ptr.hpp"

/// @file
/// The states of lockstep's own objects, for checkpoint::Manager::add, which calls `state_of`. For
/// a class of one's own, write such a function beside it. Objects must live as long as the manager.

namespace lockstep {
class Generator;
template <class M>
class DistributedDataParallel;
namespace amp {
class GradScaler;
}
namespace comm {
class Communicator;
}
namespace nn {
class Module;
class ReplicatedModule;
}  // namespace nn
namespace optim {
class LRScheduler;
class Optimizer;
class ReduceLROnPlateau;
class WeightAverage;
}  // namespace optim
namespace parallel {
class DelayedReduction;
class PowerSgd;
}  // namespace parallel
}  // namespace lockstep

namespace lockstep::checkpoint {

/// Parameters and persistent buffers under their names: Hugging Face's where the module has those.
/// Parameters must be alike on all ranks: a save is refused where, on a CPU, they are not. Buffers
/// are saved as rank 0 has them.
TensorState state_of(nn::Module& module);
/// The same by a handle.
template <class M>
TensorState state_of(nn::ModulePtr<M>& module) {
  return state_of(static_cast<nn::Module&>(*module));
}
/// The same of a replica: buffers are saved as rank 0 has them, with which each step starts
/// (without `broadcast_buffers` each rank saves and loads its own, as below), and with zero_stage 3
/// each rank its shards. Where replicas train alone (LocalSGD, DiLoCo), each rank saves and loads
/// its own, as "each_rank/NAME" with a first dimension of ranks; on another number of ranks, or
/// without these, all go on from the average, which is told as a warning. Between the micro-batches
/// of a step the gradients that backwards under no_sync() have added up are saved in the same way,
/// where any rank has some: a rank without gets none back, and a checkpoint without them drops what
/// has added up since; those with weights are loaded on as many ranks only. With reduction =
/// reproducible a save there throws InvalidArgument.
TensorState state_of(nn::Module& module, nn::ReplicatedModule& replica);
template <class M>
TensorState state_of(DistributedDataParallel<M>& replica) {
  return state_of(replica.module(), replica.replica());
}

/// States under the names of the parameters, groups and options.
/// @throws InvalidArgument for an optimizer of shards, which needs the replica that they are of.
TensorState state_of(optim::Optimizer& optimizer);
/// The same of an optimizer of a replica's parameters: with a zero_stage each rank saves and loads
/// the states of its shards. Where replicas train alone, as with the module.
TensorState state_of(optim::Optimizer& optimizer, nn::ReplicatedModule& replica);
template <class M>
TensorState state_of(optim::Optimizer& optimizer, DistributedDataParallel<M>& replica) {
  return state_of(optimizer, replica.replica());
}
/// Averages of weights and their number.
TensorState state_of(optim::WeightAverage& average);
/// The same where replicas may train alone, as with the module.
TensorState state_of(optim::WeightAverage& average, nn::ReplicatedModule& replica);
template <class M>
TensorState state_of(optim::WeightAverage& average, DistributedDataParallel<M>& replica) {
  return state_of(average, replica.replica());
}

/// Factors and this rank's errors, as "each_rank/NAME" with a first dimension of ranks. On another
/// number of ranks each goes on from the average of the errors, whose effect is that of all.
/// @param replica whose hook it is.
TensorState state_of(parallel::PowerSgd& hook, nn::ReplicatedModule& replica);
template <class M>
TensorState state_of(parallel::PowerSgd& hook, DistributedDataParallel<M>& replica) {
  return state_of(hook, replica.replica());
}
/// The averages that the next backward leaves: alike on all ranks, and right on any number.
TensorState state_of(parallel::DelayedReduction& hook);

/// The number of steps. Add it after its optimizer.
ValueState state_of(optim::LRScheduler& scheduler);
/// What it waits for. Add it after its optimizer.
ValueState state_of(optim::ReduceLROnPlateau& scheduler);
/// Scale, counters and options.
ValueState state_of(amp::GradScaler& scaler);
/// The same of a replica: each rank's own if replicas train alone when it is added.
ValueState state_of(amp::GradScaler& scaler, nn::ReplicatedModule& replica);
template <class M>
ValueState state_of(amp::GradScaler& scaler, DistributedDataParallel<M>& replica) {
  return state_of(scaler, replica.replica());
}
/// Tensors of which each rank has its own, such as replay buffers, memory banks or the states of
/// environments: each gets its own back. They are saved as "each_rank/NAME" with a first dimension
/// of ranks; on another number of ranks, rank r gets what rank r % saved ranks had, and rank 0
/// warns.
///
///     checkpoints.add("replay", checkpoint::state_of_each_rank(
///                                   {{"states", states}, {"actions", actions}},
///                                   *session.world()));
///
/// @param tensors of the same names, shapes and dtypes on all ranks, on any device; loaded in
/// place. Those that are saved must not be changed in number or shape meanwhile.
/// @param group whose ranks save.
TensorState state_of_each_rank(NamedTensors tensors, const comm::Communicator& group);

/// Each rank's own seed and place. A rank that the saved job did not have keeps its seed and goes
/// to the place of rank 0.
ValueState state_of(Generator& generator);

/// What has a `state()` that counts samples and a `load_state` that takes it, such as a DataLoader.
template <class L>
concept CountsSamples = requires(L& loader) {
  loader.load_state(loader.state());
  loader.state().samples;
};

/// Where it stands.
template <CountsSamples L>
ValueState state_of(L& loader) {
  return {.values =
              [&loader] {
                const auto state = loader.state();
                Values values{{"epoch", state.epoch},
                              {"samples", state.samples},
                              {"signature", state.signature}};
                if (state.seed) values.set("seed", *state.seed);
                return values;
              },
          .load =
              [&loader](const Values& values) {
                auto state = loader.state();
                state.epoch = values.get<std::uint64_t>("epoch");
                state.samples = values.get<std::int64_t>("samples");
                state.signature = values.get<std::uint64_t>("signature");
                state.seed = std::nullopt;
                if (values.contains("seed")) state.seed = values.get<std::uint64_t>("seed");
                loader.load_state(state);
              }};
}

/// A letter, which is no number to keep.
template <class T>
concept IsCharacter = std::same_as<T, char> || std::same_as<T, wchar_t> ||
    std::same_as<T, char8_t> || std::same_as<T, char16_t> || std::same_as<T, char32_t>;

/// A tensor of one's own, which is loaded in place and must be alike on all ranks: a save is
/// refused where, on a CPU, it is not.
/// @throws InvalidArgument for an undefined one.
TensorState state_of(Tensor& tensor);

/// A variable: its value on rank 0, which all ranks load. For one that ranks have of their own
/// write a ValueState with `load_on_new_rank`.
template <class T>
requires(std::integral<T> && !IsCharacter<T>) || std::floating_point<T> ||
    std::same_as<T, std::string> ValueState state_of(T& variable) {
  return {.values =
              [&variable] {
                Values values;
                values.set("value", variable);
                return values;
              },
          .load = [&variable](const Values& values) { variable = values.get<T>("value"); }};
}

}  // namespace lockstep::checkpoint
