#include "comm/nccl/nccl_endings.hpp"

#include <thread>
#include <utility>

#include "comm/poll_pause.hpp"
#include "runtime/cuda/device_guard.hpp"

namespace lockstep::comm {

void NcclEndings::start(Device device, std::function<void()> end) noexcept {
  {
    const std::lock_guard lock(state_->mutex);
    ++state_->running;
  }
  const auto run = [device, end = std::move(end), state = state_] {
    try {
      const CudaDeviceGuard guard(device.index);
      end();
    } catch (...) {
      // The device has failed: nothing runs on it any more.
    }
    const std::lock_guard lock(state->mutex);
    --state->running;
    state->ended.notify_all();
  };
  try {
    std::thread(run).detach();
  } catch (...) {
    run();
  }
}

void NcclEndings::wait(std::chrono::milliseconds limit) noexcept {
  std::unique_lock lock(state_->mutex);
  state_->ended.wait_for(lock, limit, [&] { return state_->running == 0; });
}

void finalize_and_destroy(ncclComm_t communicator) noexcept {
  ncclResult_t status = ncclCommFinalize(communicator);
  for (PollPause polling; status == ncclInProgress; polling.pause())
    if (ncclCommGetAsyncError(communicator, &status) != ncclSuccess) break;
  if (status == ncclSuccess)
    ncclCommDestroy(communicator);
  else
    ncclCommAbort(communicator);
}

}  // namespace lockstep::comm
