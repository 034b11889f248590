#pragma once

#include <span>

#include <nccl.h>

#include "comm/operation.hpp"

namespace lockstep::comm {

/// Device memory for what carries no data of the caller's.
struct NcclScratch {
  float barrier, sent, received;
};

/// Where an operation is put: a group, this rank's place in it, and a stream.
struct NcclPlace {
  ncclComm_t communicator;
  int rank, size;
  NcclScratch* scratch;
  cudaStream_t stream;
};

/// Puts the NCCL calls of operations on a stream, those of several as one group. Returns the first
/// error.
ncclResult_t enqueue(std::span<const Operation> operations, const NcclPlace& place);

}  // namespace lockstep::comm
