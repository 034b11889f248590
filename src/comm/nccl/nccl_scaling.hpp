#pragma once

#include "comm/operation.hpp"
#include "lockstep/memory/allocator.hpp"
#include "lockstep/runtime/stream.hpp"

/// @file
/// Factors that NCCL does not apply as it should.

namespace lockstep::comm {

/// NCCL rounds the factor of a reduction to the dtype of the data: 1/3 in bf16 is 0.2 % off, for
/// every element alike. Where a factor would suffer, it is applied in f32 by kernels of our own:
/// an average is a sum of parts divided by a power of two, which is exact and cannot overflow, and
/// the rest of the division follows the sum; a scaled sum is scaled before.
///
/// A rank alone applies every factor itself, and leaves NCCL a copy: NCCL's kernel for scaled sums
/// of one rank, which averages of floats go to as well, leaves out the last elements where they do
/// not fill its blocks alike (`oneRankReduce` of NCCL 2.19 to 2.29.3; of 40,001 floats it misses
/// one).
class NcclScaling {
 public:
  /// Queues what comes before the operation, and changes it to what NCCL shall do.
  NcclScaling(Operation& operation, int rank, int size, StreamRef stream);
  NcclScaling(const NcclScaling&) = delete;
  NcclScaling& operator=(const NcclScaling&) = delete;
  ~NcclScaling();

  /// Queues what follows the operation.
  void finish() const;

 private:
  void reduce_alone(Operation& operation);
  void scale_before(Operation& operation);
  void divide_around(Operation& operation, int rank, int size);

  StreamRef stream_;
  DType dtype_;
  std::byte* output_ = nullptr;
  std::int64_t output_count_ = 0;
  double factor_after_ = 1.0;
  MemoryBlock* scaled_ = nullptr;  // a scaled copy of an input that belongs to the caller
};

}  // namespace lockstep::comm
