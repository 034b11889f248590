#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::parallel {

/// Zeros in the memory that a group has for buffers of its operations (`comm::allocate_for`), else
/// in any; of one dimension. In a step that is captured in any: that takes memory from its own
/// pool.
Tensor zeros_for(Communicator& group, std::int64_t count, TensorOptions options);

}  // namespace lockstep::parallel
