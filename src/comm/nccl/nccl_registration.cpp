#include <algorithm>
#include <vector>

#include <unistd.h>

#include "comm/nccl/nccl_backend.hpp"
#include "comm/poll_pause.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/memory/memory_pool.hpp"
#include "runtime/cuda/device_guard.hpp"
#include "runtime/step_recording.hpp"

// Buffers that NCCL reads and writes itself, from 2.19 on.

namespace lockstep::comm {
namespace {

/// What was registered with a group, for as long as that is there.
class NcclRegistration final : public Registration {
 public:
  explicit NcclRegistration(IntrusivePtr<NcclGroup> group) : group_(std::move(group)) {}
  ~NcclRegistration() override { group_->deregister(handles_); }
  void add(const MemoryRange& range) {
    handles_.reserve(handles_.size() + 1);
    handles_.push_back(group_->register_range(range.data, range.bytes));
  }

 private:
  IntrusivePtr<NcclGroup> group_;
  std::vector<void*> handles_;
};

}  // namespace

// NCCL registers whole pages of the host's size.
std::size_t NcclBackend::registration_granularity() const {
  return static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

std::unique_ptr<Registration> NcclBackend::register_memory(std::span<const MemoryRange> ranges) {
  if (has_left_) refuse_after_leaving();
  LOCKSTEP_CHECK(
      pool_kind() != PoolKind::growable, Unsupported,
      "the pages of the pool \"growable\" (LOCKSTEP_POOL) are mapped without handles, by "
      "which others could reach them; \"caching\" lets its memory be registered");
  auto registration = std::make_unique<NcclRegistration>(group_);
  for (const MemoryRange& range : ranges) registration->add(range);
  return registration;
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)

void* NcclGroup::register_range(void* data, std::size_t bytes) {
  const std::lock_guard lock(handle_->call_mutex);
  raise_if_failed();
  const CudaDeviceGuard guard(device_.index);
  handle_->registered.reserve(handle_->registered.size() + 1);
  void* handle = nullptr;
  const ncclResult_t status = ncclCommRegister(handle_->communicator, data, bytes, &handle);
  if (status != ncclSuccess)
    throw NcclError("ncclCommRegister", static_cast<int>(status), ncclGetErrorString(status));
  LOCKSTEP_CHECK(handle, Unsupported,
                 "NCCL registers no buffers here: NCCL_LOCAL_REGISTER is 0, or "
                 "NCCL_P2P_USE_CUDA_MEMCPY is 1");
  handle_->registered.push_back(handle);
  return handle;
}

// Of a group that has failed what is under way may still use the memory, until the abort that has
// begun is through: its caller is about to free it. An abort that takes longer waits for other
// work.
void NcclGroup::deregister(std::span<void* const> handles) noexcept {
  if (handles.empty()) return;
  try {
    const CudaDeviceGuard guard(device_.index);
    wait_until_idle();
    if (try_deregister(handles)) return;
  } catch (...) {
    return;  // the device has failed: nothing runs on it any more
  }
  const auto deadline = Clock::now() + call_grace_period;
  for (PollPause polling; !handle_->is_gone && Clock::now() < deadline;) polling.pause();
}

// The launch of a captured step is under way like any other operation; its Works, which the step's
// code has, tell nothing. Whoever captures cannot wait.
void NcclGroup::wait_until_idle() {
  if (StepRecording::current()) return;
  const auto is_idle = [this] {
    const std::lock_guard lock(idle_mutex_);
    return has_failed() || !is_idle_ || is_idle_();
  };
  for (PollPause polling; !is_idle();) polling.pause();
}

// Nothing of a group that has failed, be it while this waits for the mutex.
bool NcclGroup::try_deregister(std::span<void* const> handles) {
  if (has_failed()) return false;
  const std::lock_guard lock(handle_->call_mutex);
  if (has_failed()) return false;
  for (void* const handle : handles) {
    const auto found = std::ranges::find(handle_->registered, handle);
    if (found == handle_->registered.end()) continue;  // the group has ended before
    handle_->registered.erase(found);
    ncclCommDeregister(handle_->communicator, handle);
  }
  return true;
}

void NcclGroup::deregister_all(ncclComm_t communicator) noexcept {
  for (void* const handle : std::exchange(handle_->registered, {}))
    ncclCommDeregister(communicator, handle);
}

#else

void* NcclGroup::register_range(void*, std::size_t) {
  LOCKSTEP_THROW(Unsupported, "this NCCL knows no registration of buffers, which came with 2.19");
}
void NcclGroup::deregister(std::span<void* const>) noexcept {}
void NcclGroup::deregister_all(ncclComm_t) noexcept {}

#endif

}  // namespace lockstep::comm
