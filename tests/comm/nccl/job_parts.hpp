#pragma once

#include <chrono>
#include <cstdio>
#include <thread>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// What jobs over NCCL have in common.

namespace lockstep::testing {

inline comm::Buffer buffer_of(const Tensor& x) { return {x.data_ptr(), x.numel(), x.dtype()}; }

inline void sleep(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

/// Tests measure from here how soon the job ends.
inline void note_event() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  std::printf(
      "event at %lld ms\n",
      static_cast<long long>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count()));
  std::fflush(stdout);
}

}  // namespace lockstep::testing
