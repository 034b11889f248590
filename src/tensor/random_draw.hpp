#pragma once

#include "backend/backend.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/tensor/storage.hpp"

/// @file
/// Draws from a generator on any device.

namespace lockstep {

/// One draw of a generator, where the kernels of a device find it. Copies draw the same. In a step
/// that is captured it is another draw with each launch.
class RandomDraw {
 public:
  /// Takes the generator's next place. On a GPU only the first draw of a seed queues anything.
  /// @throws Unsupported in a captured step for others than the calling thread's generator.
  RandomDraw(Generator& generator, StreamRef stream);

  /// For kernels on the device, while this lives.
  kernels::RandomPlace place() const {
    if (!base_) return {.base = &state_};
    return {.base = base_, .draws = state_.offset};
  }

 private:
  PhiloxState state_;
  const PhiloxState* base_ = nullptr;  // in the memory of a GPU, or of a captured step
  IntrusivePtr<Storage> memory_;       // keeps it, where it is the seed's
};

}  // namespace lockstep
