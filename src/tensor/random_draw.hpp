#pragma once

#include "backend/backend.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/tensor/storage.hpp"

/// @file
/// Draws from a generator on any device.

namespace lockstep {

/// One draw of a generator, where the kernels of a device find it. Copies draw the same.
class RandomDraw {
 public:
  /// Takes the generator's next place. On a GPU only the first draw of a seed queues anything.
  RandomDraw(Generator& generator, StreamRef stream);

  /// For kernels on the device, while this lives.
  kernels::RandomPlace place() const {
    if (!memory_) return {.base = &state_};
    return {.base = static_cast<const PhiloxState*>(memory_->data()), .draws = state_.offset};
  }

 private:
  PhiloxState state_;
  IntrusivePtr<Storage> memory_;  // the seed's on a GPU; none on the CPU
};

}  // namespace lockstep
