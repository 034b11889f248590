#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/comm/reduce_op.hpp"
#include "lockstep/core/dtype.hpp"

namespace lockstep::comm::shm {

/// The sum or average of two floating arrays by the vectorised loops of the CPU kernels; to the
/// bits of `host::fold`, as two values have one sum in any order.
/// @param out may be one of the two.
/// @return false for what it does not do, with nothing written.
bool sum_pair(DType dtype, ReduceKind kind, const std::byte* a, const std::byte* b, std::byte* out,
              std::int64_t count);

}  // namespace lockstep::comm::shm
