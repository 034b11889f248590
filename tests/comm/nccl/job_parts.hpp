#pragma once

#include <chrono>
#include <thread>

#include "comm/jobs/event.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// What jobs over NCCL have in common.

namespace lockstep::testing {

inline comm::Buffer buffer_of(const Tensor& x) { return {x.data_ptr(), x.numel(), x.dtype()}; }

inline void sleep(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

}  // namespace lockstep::testing
