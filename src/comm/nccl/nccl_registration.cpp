#include <algorithm>
#include <vector>

#include <unistd.h>

#include "comm/nccl/nccl_backend.hpp"
#include "comm/poll_pause.hpp"
#include "lockstep/core/error.hpp"
#include "runtime/cuda/device_guard.hpp"

// Buffers that NCCL reads and writes itself, from 2.19 on.

namespace lockstep::comm {
namespace {

/// What was registered with a group, for as long as that is there.
class NcclRegistration final : public Registration {
 public:
  explicit NcclRegistration(IntrusivePtr<NcclGroup> group) : group_(std::move(group)) {}
  ~NcclRegistration() override {
    for (void* const handle : handles_) group_->deregister(handle);
  }
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
void NcclGroup::deregister(void* handle) noexcept {
  if (has_failed()) {
    const auto deadline = Clock::now() + call_grace_period;
    for (PollPause polling; !handle_->is_gone && Clock::now() < deadline;) polling.pause();
    return;
  }
  const std::lock_guard lock(handle_->call_mutex);
  const auto found = std::ranges::find(handle_->registered, handle);
  if (found == handle_->registered.end()) return;  // the group has ended before
  handle_->registered.erase(found);
  if (handle_->communicator) ncclCommDeregister(handle_->communicator, handle);
}

void NcclGroup::deregister_all(ncclComm_t communicator) noexcept {
  for (void* const handle : std::exchange(handle_->registered, {}))
    ncclCommDeregister(communicator, handle);
}

#else

void* NcclGroup::register_range(void*, std::size_t) {
  LOCKSTEP_THROW(Unsupported, "this NCCL knows no registration of buffers, which came with 2.19");
}
void NcclGroup::deregister(void*) noexcept {}
void NcclGroup::deregister_all(ncclComm_t) noexcept {}

#endif

}  // namespace lockstep::comm
