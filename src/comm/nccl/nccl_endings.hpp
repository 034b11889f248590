#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>

#include <nccl.h>

#include "lockstep/core/device.hpp"

namespace lockstep::comm {

/// Where communicators come to their end: each on a thread of its own, because NCCL's calls for
/// that may wait. ncclCommDestroy "is an intra-node collective call"; ncclCommAbort frees memory,
/// which waits for all else that the device does, such as a kernel of another communicator.
class NcclEndings {
 public:
  /// Runs `end` with the device current. Where there is no thread to be had, right here.
  void start(Device device, std::function<void()> end) noexcept;
  /// Waits until all have run, or `limit` has passed; those that have not are left behind.
  void wait(std::chrono::milliseconds limit) noexcept;

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable ended;
    int running = 0;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();  // outlives this in the threads
};

/// Ends a communicator in good order: what is under way ends, then its memory goes.
void finalize_and_destroy(ncclComm_t communicator) noexcept;

}  // namespace lockstep::comm
