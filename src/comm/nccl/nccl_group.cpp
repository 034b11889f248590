#include "comm/nccl/nccl_group.hpp"

#include <exception>

#include "comm/nccl/poll_pause.hpp"
#include "lockstep/core/error.hpp"
#include "runtime/background_failure.hpp"
#include "runtime/cuda/device_guard.hpp"

namespace lockstep::comm {
namespace {

// A destructor must not wait for as long as an operation may take.
constexpr auto grace_period = std::chrono::seconds(10);

[[noreturn]] void throw_nccl(const char* call, ncclResult_t status, ncclComm_t communicator) {
  const std::string detail =
      std::string(ncclGetErrorString(status)) + ": " + ncclGetLastError(communicator);
  throw NcclError(call, static_cast<int>(status), detail);
}

ncclConfig_t non_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

}  // namespace

NcclGroup::NcclGroup(Device device, const ncclUniqueId& id, int rank, int size,
                     std::chrono::milliseconds timeout)
    : device_(device) {
  const CudaDeviceGuard guard(device.index);
  ncclConfig_t config = non_blocking();
  const ncclResult_t status = ncclCommInitRankConfig(&communicator_, size, id, rank, &config);
  try {
    complete("ncclCommInitRankConfig", status, Clock::now() + timeout);
  } catch (...) {
    if (communicator_) ncclCommAbort(communicator_);
    throw;
  }
}

NcclGroup::NcclGroup(Device device, ncclComm_t communicator)
    : device_(device), communicator_(communicator) {}

NcclGroup::~NcclGroup() {
  finish();
  if (kept_ && is_told_) forget_background_failure(kept_);
}

int NcclGroup::rank() const {
  int rank = 0;
  if (ncclCommUserRank(communicator_, &rank) != ncclSuccess)
    throw_nccl("ncclCommUserRank", ncclInternalError, communicator_);
  return rank;
}

int NcclGroup::size() const {
  int size = 0;
  if (ncclCommCount(communicator_, &size) != ncclSuccess)
    throw_nccl("ncclCommCount", ncclInternalError, communicator_);
  return size;
}

// A non-blocking communicator answers "in progress" until its own thread has done the work.
void NcclGroup::complete(const char* call, ncclResult_t status, Clock::time_point deadline) {
  for (PollPause polling; status == ncclInProgress; polling.pause()) {
    throw_if_failed();
    LOCKSTEP_CHECK(Clock::now() < deadline, Timeout, call,
                   " did not finish in time: is every rank of the group alive?");
    ncclResult_t background = ncclSuccess;
    const ncclResult_t query = ncclCommGetAsyncError(communicator_, &background);
    status = query == ncclSuccess ? background : query;
  }
  if (status != ncclSuccess) throw_nccl(call, status, communicator_);
}

void NcclGroup::run(const char* call, std::chrono::milliseconds timeout,
                    FunctionRef<ncclResult_t(ncclComm_t)> body) {
  Failure failure;
  {
    const std::lock_guard lock(call_mutex_);
    raise_if_failed();
    const CudaDeviceGuard guard(device_.index);
    try {
      return complete(call, body(communicator_), Clock::now() + timeout);
    } catch (...) {
      failure = Failure::from_current();
    }
  }
  abort(failure);
  raise_if_failed();
}

IntrusivePtr<NcclGroup> NcclGroup::split(int color, int key, std::chrono::milliseconds timeout) {
  ncclComm_t part = nullptr;
  ncclConfig_t config = non_blocking();
  run("ncclCommSplit", timeout, [&](ncclComm_t whole) {
    return ncclCommSplit(whole, color < 0 ? NCCL_SPLIT_NOCOLOR : color, key, &part, &config);
  });
  if (!part) return nullptr;
  auto group = make_intrusive<NcclGroup>(device_, part);
  group->run("ncclCommSplit", timeout, [](ncclComm_t) { return ncclInProgress; });
  return group;
}

void NcclGroup::poll_background() {
  std::unique_lock lock(call_mutex_, std::try_to_lock);
  if (!lock || has_failed() || !communicator_)
    return;  // whoever is in a call looks for errors itself
  ncclResult_t background = ncclSuccess;
  const ncclResult_t query = ncclCommGetAsyncError(communicator_, &background);
  const ncclResult_t status = query == ncclSuccess ? background : query;
  if (status == ncclSuccess || status == ncclInProgress) return;
  Failure failure;
  try {
    throw_nccl("a collective", status, communicator_);
  } catch (...) {
    failure = Failure::from_current();
  }
  lock.unlock();
  abort(failure);
}

void NcclGroup::abort(const Failure& failure) noexcept {
  {
    const std::lock_guard lock(failure_mutex_);
    if (failure_) return;
    failure_ = failure;
    keep(failure);  // before the abort lets kernels return, and their results look good
    has_failed_.store(true, std::memory_order_release);  // ends the polling of a call under way
  }
  const std::lock_guard lock(call_mutex_);
  if (ncclComm_t communicator = std::exchange(communicator_, nullptr)) ncclCommAbort(communicator);
}

void NcclGroup::keep(const Failure& failure) noexcept {
  try {
    kept_ = keep_background_failure([failure] { failure.raise(); });
  } catch (...) {
    // Out of memory for the note; the group's own calls still fail.
  }
}

void NcclGroup::raise_if_failed() const {
  if (!has_failed()) [[likely]]
    return;
  note_told();
  throw_if_failed();
}

void NcclGroup::throw_if_failed() const {
  if (!has_failed()) return;
  const std::lock_guard lock(failure_mutex_);
  failure_->raise();
}

std::optional<Failure> NcclGroup::failure() const {
  const std::lock_guard lock(failure_mutex_);
  return failure_;
}

// In good order if all is well: finalize lets the peers finish too. Otherwise abort waits for none.
void NcclGroup::finish() noexcept {
  if (has_failed()) return;
  const bool is_finalized = std::uncaught_exceptions() == 0 && try_finalize();
  const std::lock_guard lock(call_mutex_);
  ncclComm_t communicator = std::exchange(communicator_, nullptr);
  if (!communicator) return;
  if (is_finalized)
    ncclCommDestroy(communicator);
  else
    ncclCommAbort(communicator);
}

bool NcclGroup::try_finalize() noexcept {
  Failure failure;
  try {
    const std::lock_guard lock(call_mutex_);
    if (!communicator_) return false;
    const CudaDeviceGuard guard(device_.index);
    complete("ncclCommFinalize", ncclCommFinalize(communicator_), Clock::now() + grace_period);
    return true;
  } catch (...) {
    failure = Failure::from_current();
  }
  abort(failure);
  return false;
}

}  // namespace lockstep::comm
