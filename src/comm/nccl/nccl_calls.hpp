#pragma once

#include <span>

#include <nccl.h>

#include "comm/operation.hpp"

namespace lockstep::comm {

/// Where an operation is put: a group, this rank's place in it, and a stream.
struct NcclPlace {
  ncclComm_t communicator;
  int rank, size;
  void* scratch;  ///< device memory of one f32, for barriers
  cudaStream_t stream;
};

/// Puts the NCCL calls of operations on a stream, those of several as one group. Returns the first
/// error.
ncclResult_t enqueue(std::span<const Operation> operations, const NcclPlace& place);

}  // namespace lockstep::comm
