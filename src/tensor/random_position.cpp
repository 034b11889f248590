#include "lockstep/tensor/random_position.hpp"

#include "lockstep/core/random.hpp"
#include "runtime/step_recording.hpp"

namespace lockstep {

RandomPosition::RandomPosition() : generator_(default_generator().state()) {
  if (const StepRecording* step = StepRecording::current()) draws_ = step->draws();
}

void RandomPosition::restore() const {
  default_generator().set_state(generator_);
  if (StepRecording* step = StepRecording::current()) step->set_draws(draws_);
}

}  // namespace lockstep
