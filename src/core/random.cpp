#include "lockstep/core/random.hpp"

namespace lockstep {

void Generator::manual_seed(std::uint64_t seed) { set_state({seed, 0}); }

PhiloxState Generator::next() {
  const std::lock_guard lock(mutex_);
  const PhiloxState here = state_;
  ++state_.offset;
  return here;
}

PhiloxState Generator::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

void Generator::set_state(PhiloxState state) {
  const std::lock_guard lock(mutex_);
  state_ = state;
}

Generator& default_generator() {
  thread_local Generator generator;
  return generator;
}

void manual_seed(std::uint64_t seed) { default_generator().manual_seed(seed); }

}  // namespace lockstep
