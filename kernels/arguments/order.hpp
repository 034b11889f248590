#pragma once

#include "arguments/family.hpp"
#include "lockstep/core/array_view.hpp"

/// @file
/// Sorting lines of arrays, and finding places in sorted ones. NaN counts as larger than all.

namespace lockstep::kernels {

/// out (i64) = the positions along dim at which the elements of each line stand in order: equal
/// ones keep theirs. Any dtype. @throws Unsupported for lines of 2^32 elements (CPU) or 2^31
/// elements in all (GPU) and more.
struct ArgsortArguments {
  ArrayView out = {}, in = {};
  int dim = 0;
  bool descending = false;
};

/// out (i64) = how many elements of the line of `sorted`, which rises, stand before each value. All
/// lines run along the last dimension; other extents agree. Numeric dtypes.
struct SearchArguments {
  ArrayView out = {}, sorted = {};
  ArrayView values = {};  ///< of out's shape
  bool right = false;     ///< equal elements stand before the value too
};

}  // namespace lockstep::kernels

/// Kernels of order of one backend. Work runs in the order of the stream.
#define LOCKSTEP_ORDER_KERNELS(KERNEL) \
  KERNEL(argsort, ArgsortArguments)    \
  KERNEL(search, SearchArguments)
LOCKSTEP_KERNEL_FAMILY(order, OrderKernels, LOCKSTEP_ORDER_KERNELS)
