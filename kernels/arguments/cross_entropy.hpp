#pragma once

#include <cstdint>

#include "arguments/family.hpp"
#include "lockstep/core/array_view.hpp"

/// @file
/// Cross-entropy of contiguous logits [n, classes] against class numbers. Statistics are f32, or
/// f64 where the logits are f64.

namespace lockstep::kernels {

/// Which rows count, and how much.
struct CrossEntropyOptions {
  std::int64_t ignore_index = -100;
  double label_smoothing = 0.0;
};

/// The loss of each row. @throws InvalidArgument for a target out of range (CPU); on a GPU the
/// row's loss is NaN.
struct CrossEntropyArguments {
  ArrayView loss = {};        ///< [n] statistics dtype, already weighted; 0 for ignored rows
  ArrayView statistics = {};  ///< [n, 2] the row's maximum m and the sum of exp(logit - m)
  ArrayView row_weight =
      {};                  ///< [n] what the row counts in a mean: its target's weight, 0 if ignored
  ArrayView logits = {};   ///< [n, classes]
  ArrayView targets = {};  ///< [n] i64
  ArrayView weight = {};   ///< [classes] in the logits' dtype; may be absent
  CrossEntropyOptions options = {};
};

/// The logits' gradient, given that of each row's loss.
struct CrossEntropyBackwardArguments {
  ArrayView dlogits = {};
  ArrayView dloss = {};  ///< [n] statistics dtype; stride 0 allowed
  ArrayView logits = {}, targets = {}, weight = {}, statistics = {};
  CrossEntropyOptions options = {};
};

}  // namespace lockstep::kernels

/// Cross-entropy of one backend. Work runs in the order of the stream.
#define LOCKSTEP_CROSS_ENTROPY_KERNELS(KERNEL) \
  KERNEL(forward, CrossEntropyArguments)       \
  KERNEL(backward, CrossEntropyBackwardArguments)
LOCKSTEP_KERNEL_FAMILY(cross_entropy, CrossEntropyKernels, LOCKSTEP_CROSS_ENTROPY_KERNELS)
