#pragma once

#include <string_view>

#include "arguments/family.hpp"
#include "lockstep/core/array_view.hpp"

/// @file
/// Reading and adding at positions that an index array names, along one dimension.

namespace lockstep::kernels {

/// out = in gathered along dim: out[..i..] = in[..index[..i..]..]. @throws InvalidArgument for an
/// index out of range (CPU); on a GPU NaN is there, of integers 0.
struct GatherArguments {
  ArrayView out = {}, in = {};
  ArrayView index = {};  ///< i64, of out's shape
  int dim = 0;
};

/// out[..index[..i..]..] += in[..i..] along dim: the backward of gather. Every addition is rounded
/// to the dtype.
struct ScatterAddArguments {
  ArrayView out = {}, in = {};
  ArrayView index = {};  ///< i64, of in's shape
  int dim = 0;
  std::string_view op = "scatter_add";  ///< for messages
};

/// out[..index[..i..]..] = in[..i..] along dim: of those at one place the last one stays.
struct ScatterArguments {
  ArrayView out = {}, in = {};
  ArrayView index = {};  ///< i64, of in's shape
  int dim = 0;
};

}  // namespace lockstep::kernels

/// Indexed access of one backend. Work runs in the order of the stream.
#define LOCKSTEP_INDEX_KERNELS(KERNEL) \
  KERNEL(gather, GatherArguments)      \
  KERNEL(scatter, ScatterArguments)    \
  KERNEL(scatter_add, ScatterAddArguments)
LOCKSTEP_KERNEL_FAMILY(index, IndexKernels, LOCKSTEP_INDEX_KERNELS)
