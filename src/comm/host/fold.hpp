#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/comm/reduce_op.hpp"
#include "lockstep/core/dtype.hpp"

namespace lockstep::comm::host {

/// What each rank contributes to a reduction: one array and one factor a rank, in rank order.
struct Contributions {
  std::span<const std::byte* const> sources;
  std::span<const double> factors;  ///< for scaled_sum; otherwise ignored
};

/// Reduces arrays of `count` elements into `out`, by a fixed tree over the contributions: of n, the
/// first 2^k, the largest power of two below n, are folded, then the others, then the two results.
/// So 4 give (0 + 1) + (2 + 3), which is also what two groups of two give whose results are folded.
/// f32, bf16 and f16 accumulate in float, f64 in double, integers in 64 bits;
/// each result is rounded once. `out` may be one of the sources.
/// @throws Unsupported for bool, and for a scaled sum of integers.
void fold(DType dtype, ReduceKind kind, const Contributions& from, std::byte* out,
          std::int64_t count);

}  // namespace lockstep::comm::host
