#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/comm/buffer.hpp"
#include "lockstep/comm/reduce_op.hpp"

namespace lockstep::comm {

/// Names the call in messages, and the group's extent.
struct CallSite {
  const char* call;
  int size;
};

/// Refuses null data with elements, and negative counts. @throws InvalidArgument
void check_buffer(const CallSite& site, const ConstBuffer& buffer);
/// Refuses a rank outside the group. @throws InvalidArgument
void check_rank(const CallSite& site, const char* what, int rank);
/// Refuses a rank outside the group, and the caller's own. @throws InvalidArgument
void check_other_rank(const CallSite& site, const char* what, int rank, int own);
/// Refuses dtypes and factors that the reduction cannot take. @throws Unsupported, InvalidArgument
void check_reduction(const CallSite& site, DType dtype, ReduceOp reduction);
/// Checks that `part` is rank's part of `whole`, there in its place or apart from it, and returns
/// the parts' sizes (filled in if empty).
/// @throws InvalidArgument
std::vector<std::int64_t> check_parts(const CallSite& site, const ConstBuffer& part, int rank,
                                      const ConstBuffer& whole,
                                      std::span<const std::int64_t> counts);
/// Checks that both have the same dtype and a count that the group divides, and lie apart.
/// @throws InvalidArgument
void check_all_to_all(const CallSite& site, const ConstBuffer& input, const ConstBuffer& output);

}  // namespace lockstep::comm
