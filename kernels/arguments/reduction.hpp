#pragma once

#include <cstdint>

#include "arguments/family.hpp"
#include "functional/op_list.hpp"
#include "lockstep/core/array_view.hpp"

/// @file
/// Reductions, running sums and extremes along dimensions of strided arrays. bf16 and f16
/// accumulate in f32.

namespace lockstep::kernels {

/// Reduces `in` into `out`, which has the same rank with extent 1 in every reduced dimension.
/// Floating dtypes, and others as ops.def says. `out` has the dtype of `in`; where the op widens it
/// may also have the one that it is held in: f32 for bf16 and f16, i64 for integers and bool (u8,
/// bool: only so).
struct ReduceArguments {
  ReduceOp op = ReduceOp::sum;
  ArrayView out = {}, in = {};
  bool accumulate = false;  ///< adds to what `out` holds (sum only)
};

/// out (i64, extent 1 along dim) = position of the first largest (or smallest) element.
struct ArgExtremeArguments {
  ArrayView out = {}, in = {};
  int dim = 0;
  bool largest = true;
};

/// Running sum or product along dim.
struct ScanArguments {
  ReduceOp op = ReduceOp::sum;  ///< or prod
  ArrayView out = {}, in = {};
  int dim = 0;
  bool reverse = false;  ///< from the end
};

/// The k largest along the last dimension, in falling order, ties by lower index.
struct TopkArguments {
  ArrayView values = {};
  ArrayView indices = {};  ///< i64
  ArrayView in = {};
  std::int64_t k = 0;
};

}  // namespace lockstep::kernels

/// Reductions of one backend. Work runs in the order of the stream.
#define LOCKSTEP_REDUCTION_KERNELS(KERNEL) \
  KERNEL(reduce, ReduceArguments)          \
  KERNEL(arg_extreme, ArgExtremeArguments) \
  KERNEL(scan, ScanArguments)              \
  KERNEL(topk, TopkArguments)
LOCKSTEP_KERNEL_FAMILY(reduction, ReductionKernels, LOCKSTEP_REDUCTION_KERNELS)
