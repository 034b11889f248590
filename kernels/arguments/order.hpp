#pragma once

#include "arguments/kernel.hpp"
#include "lockstep/core/array_view.hpp"

/// @file
/// Sorting lines of arrays, and finding places in sorted ones. NaN counts as larger than all.

namespace lockstep::kernels {

/// out (i64) = the positions along dim at which the elements of each line stand in order: equal
/// ones keep theirs. Any dtype.
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

/// Kernels of order of one backend. Work runs in the order of the stream.
struct OrderKernels {
  Kernel<ArgsortArguments> argsort = {};
  Kernel<SearchArguments> search = {};
};

}  // namespace lockstep::kernels
