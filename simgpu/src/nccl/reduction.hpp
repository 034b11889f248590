#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "nccl.h"

/// @file
/// The arithmetic of reductions.

namespace simgpu::nccl {

/// One rank's values.
struct Contribution {
  const std::byte* data = nullptr;
  std::uint64_t factor = 0;  ///< for pre-multiplied sums: a value of the type, in its bits
};

/// Reduces elements of all ranks in the order of the ranks. bf16 and f16 are accumulated in float
/// and rounded once. The average multiplies floating-point values by 1/ranks, rounded to their
/// type, before it adds, and divides integers after it added, as NCCL does; minimum and maximum
/// prefer numbers to NaN, as its fmin and fmax do. One rank's pre-multiplied sum, which its average
/// of floating-point values is, leaves out the last elements where NCCL's kernel does.
/// @param op built-in, or ncclNumOps for a pre-multiplied sum
/// @param output may be the data of one of the contributions
void reduce(ncclDataType_t type, int op, std::span<const Contribution> ranks, std::size_t count,
            std::byte* output);

/// False for types that cannot be reduced here (eight-bit floats).
bool can_reduce(ncclDataType_t type);

}  // namespace simgpu::nccl
