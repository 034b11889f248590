#pragma once

#include <cstddef>
#include <span>

#include <nccl.h>

#include "comm/operation.hpp"

namespace lockstep::comm {

/// Where an operation is put: a group, this rank's place in it, and a stream.
struct NcclPlace {
  ncclComm_t communicator;
  int rank, size;
  /// Device memory for what carries no data of the caller's: an f32 for barriers, one that is sent,
  /// and one for each rank to be received from.
  float* scratch;
  cudaStream_t stream;
  std::span<const int> new_contacts{};  ///< ranks to exchange a tiny message with, as part of it

  static std::size_t scratch_bytes(int size) {
    return (2 + static_cast<std::size_t>(size)) * sizeof(float);
  }
};

/// Puts the NCCL calls of operations on a stream, those of several as one group. Returns the first
/// error.
ncclResult_t enqueue(std::span<const Operation> operations, const NcclPlace& place);

}  // namespace lockstep::comm
