#pragma once

#include "arguments/family.hpp"
#include "arguments/random_place.hpp"
#include "lockstep/core/array_view.hpp"

/// @file
/// Random numbers, floating dtypes. Which random words an element uses depends on its position
/// alone, so every backend and number of threads draws the same.

namespace lockstep::kernels {

/// out = uniform over [low, high), contiguous. Element i uses random word i.
struct UniformArguments {
  ArrayView out = {};
  double low = 0.0, high = 1.0;
  RandomPlace random = {};
};

/// out = normal by Box-Muller, contiguous. Elements 2i and 2i + 1 use words 2i and 2i + 1.
struct NormalArguments {
  ArrayView out = {};
  double mean = 0.0, deviation = 1.0;
  RandomPlace random = {};
};

/// out = x / (1 - p) where uniform(word i) >= p, else 0; i counts in row-major order, whatever the
/// strides. Applying it to dy with the same place is the backward.
struct DropoutArguments {
  ArrayView out = {}, x = {};
  double p = 0.5;
  RandomPlace random = {};
};

/// Puts a place into memory from which kernels then draw; the host does not wait for it.
struct SetPlaceArguments {
  PhiloxState* memory = nullptr;
  PhiloxState place = {};
};

}  // namespace lockstep::kernels

/// Random kernels of one backend. Work runs in the order of the stream.
#define LOCKSTEP_RANDOM_KERNELS(KERNEL) \
  KERNEL(uniform, UniformArguments)     \
  KERNEL(normal, NormalArguments)       \
  KERNEL(dropout, DropoutArguments)     \
  KERNEL(set_place, SetPlaceArguments)
LOCKSTEP_KERNEL_FAMILY(random, RandomKernels, LOCKSTEP_RANDOM_KERNELS)
