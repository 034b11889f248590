#include <utility>

#include "lockstep/amp/grad_scaler.hpp"
#include "lockstep/checkpoint/states.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/nn/distributed_data_parallel.hpp"
#include "lockstep/optim/lr_scheduler.hpp"
#include "lockstep/optim/plateau.hpp"
#include "lockstep/tensor/factories.hpp"

// What is kept in values: schedules, scalers, generators.

namespace lockstep::checkpoint {
namespace {

/// Scalars as values, and back in the dtypes that they have.
Values values_of(const NamedTensors& scalars) {
  Values values;
  for (const auto& [name, scalar] : scalars)
    if (is_floating(scalar.dtype()))
      values.set(name, scalar.item<double>());
    else
      values.set(name, scalar.item<std::int64_t>());
  return values;
}

NamedTensors scalars_of(const Values& values, const NamedTensors& like) {
  NamedTensors scalars;
  for (const auto& [name, scalar] : like)
    scalars.emplace_back(
        name,
        is_floating(scalar.dtype())
            ? full(scalar.shape(), values.get<double>(name), {.dtype = scalar.dtype()})
            : full(scalar.shape(), values.get<std::int64_t>(name), {.dtype = scalar.dtype()}));
  return scalars;
}

Values values_of(PhiloxState state) { return {{"seed", state.seed}, {"offset", state.offset}}; }

PhiloxState philox_of(const Values& values) {
  return {values.get<std::uint64_t>("seed"), values.get<std::uint64_t>("offset")};
}

}  // namespace

ValueState state_of(optim::LRScheduler& scheduler) {
  return {.values =
              [&scheduler] {
                return Values{{"steps", scheduler.steps()}};
              },
          .load =
              [&scheduler](const Values& values) {
                scheduler.set_steps(values.get<std::int64_t>("steps"));
              }};
}

ValueState state_of(optim::ReduceLROnPlateau& scheduler) {
  return {
      .values =
          [&scheduler] {
            const auto& [best, bad_steps, cooldown_left] = scheduler.state();
            return Values{
                {"best", best}, {"bad_steps", bad_steps}, {"cooldown_left", cooldown_left}};
          },
      .load =
          [&scheduler](const Values& values) {
            scheduler.set_state({values.get<double>("best"), values.get<std::int64_t>("bad_steps"),
                                 values.get<std::int64_t>("cooldown_left")});
          }};
}

ValueState state_of(amp::GradScaler& scaler) {
  return {.values = [&scaler] { return values_of(scaler.state_dict()); },
          .load =
              [&scaler](const Values& values) {
                scaler.load_state_dict(scalars_of(values, scaler.state_dict()));
              }};
}

ValueState state_of(amp::GradScaler& scaler, nn::ReplicatedModule& replica) {
  ValueState state = state_of(scaler);
  if (scaler.is_enabled() && replica.keeps_gradients()) state.load_on_new_rank = state.load;
  return state;
}

ValueState state_of(Generator& generator) {
  return {.values = [&generator] { return values_of(generator.state()); },
          .load = [&generator](const Values& values) { generator.set_state(philox_of(values)); },
          .load_on_new_rank =
              [&generator](const Values& of_rank_0) {
                generator.set_state({generator.state().seed, philox_of(of_rank_0).offset});
              }};
}

}  // namespace lockstep::checkpoint
