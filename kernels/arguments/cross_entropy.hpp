#pragma once

#include <cstdint>

#include "arguments/family.hpp"
#include "lockstep/core/array_view.hpp"

/// @file
/// Cross-entropy of logits [n, classes] against class numbers, all contiguous unless said
/// otherwise. Statistics are f32, or f64 where the logits are f64.

namespace lockstep::kernels {

/// Which rows count, and how much.
struct CrossEntropyOptions {
  std::int64_t ignore_index = -100;
  double label_smoothing = 0.0;
  std::int64_t first_row = 0;  ///< the number of the first row in messages
};

/// The loss of each row. @throws InvalidArgument for a target out of range (CPU); on a GPU the
/// row's loss is NaN.
struct CrossEntropyArguments {
  ArrayView loss = {};        ///< [n] statistics dtype, already weighted; 0 for ignored rows
  ArrayView statistics = {};  ///< [n, 2] the row's maximum m and the sum of exp(logit - m)
  ArrayView row_weight =
      {};                  ///< [n] what the row counts in a mean: its target's weight, 0 if ignored
  ArrayView logits = {};   ///< [n, classes]; rows may lie apart
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

/// Forward and backward in one pass, for losses whose gradient is known before: the logits become
/// their gradient. @throws as CrossEntropyArguments.
struct CrossEntropyGradientArguments {
  ArrayView loss = {};        ///< [n] statistics dtype, as of CrossEntropyArguments
  ArrayView row_weight = {};  ///< likewise
  ArrayView logits = {};      ///< [n, at least classes]; rows may lie apart
  std::int64_t classes = 0;   ///< the first columns; others are not read, and become 0
  ArrayView targets = {};     ///< [n] i64
  ArrayView dloss = {};       ///< [n] statistics dtype; absent: 1 for all rows
  CrossEntropyOptions options = {};
};

/// out = unit * dloss / counted, or 0 where that is 0.
struct ScaleGradientArguments {
  ArrayView out = {};   ///< contiguous, floating
  ArrayView unit = {};  ///< contiguous, of as many elements: of out's dtype, or statistics'
  ArrayView dloss = {}, counted = {};  ///< one element of statistics dtype; absent: 1
  bool accumulate = false;             ///< adds to what `out` holds
};

}  // namespace lockstep::kernels

/// Cross-entropy of one backend. Work runs in the order of the stream.
#define LOCKSTEP_CROSS_ENTROPY_KERNELS(KERNEL)    \
  KERNEL(forward, CrossEntropyArguments)          \
  KERNEL(backward, CrossEntropyBackwardArguments) \
  KERNEL(gradient, CrossEntropyGradientArguments) \
  KERNEL(scale_gradient, ScaleGradientArguments)
LOCKSTEP_KERNEL_FAMILY(cross_entropy, CrossEntropyKernels, LOCKSTEP_CROSS_ENTROPY_KERNELS)
