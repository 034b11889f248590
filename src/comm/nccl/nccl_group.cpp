#include "comm/nccl/nccl_group.hpp"

#include <exception>
#include <utility>

#include "comm/poll_pause.hpp"
#include "lockstep/core/error.hpp"
#include "runtime/background_failure.hpp"
#include "runtime/cuda/device_guard.hpp"

namespace lockstep::comm {
namespace {

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
    : device_(device), endings_(std::make_shared<NcclEndings>()) {
  const CudaDeviceGuard guard(device.index);
  ncclConfig_t config = non_blocking();
  ncclComm_t communicator = nullptr;
  const ncclResult_t status = ncclCommInitRankConfig(&communicator, size, id, rank, &config);
  handle_->communicator = communicator;
  try {
    complete("ncclCommInitRankConfig", status, Clock::now() + timeout);
  } catch (...) {
    if (communicator) ncclCommAbort(communicator);
    throw;
  }
}

NcclGroup::NcclGroup(Device device, ncclComm_t communicator, std::shared_ptr<NcclEndings> endings)
    : device_(device), endings_(std::move(endings)) {
  handle_->communicator = communicator;
}

NcclGroup::~NcclGroup() {
  finish();
  if (kept_ && (is_told_ || *lost_ == 0)) forget_background_failure(kept_);
}

int NcclGroup::rank() const {
  int rank = 0;
  if (ncclCommUserRank(handle_->communicator, &rank) != ncclSuccess)
    throw_nccl("ncclCommUserRank", ncclInternalError, handle_->communicator);
  return rank;
}

int NcclGroup::size() const {
  int size = 0;
  if (ncclCommCount(handle_->communicator, &size) != ncclSuccess)
    throw_nccl("ncclCommCount", ncclInternalError, handle_->communicator);
  return size;
}

// A non-blocking communicator answers "in progress" until its own thread has done the work. Once
// the group has failed, the communicator may be gone.
void NcclGroup::complete(const char* call, ncclResult_t status, Clock::time_point deadline) {
  throw_if_failed();
  for (PollPause polling; status == ncclInProgress; polling.pause()) {
    throw_if_failed();
    LOCKSTEP_CHECK(Clock::now() < deadline, Timeout, call,
                   " did not finish in time: is every rank of the group alive?");
    ncclResult_t background = ncclSuccess;
    const ncclResult_t query = ncclCommGetAsyncError(handle_->communicator, &background);
    status = query == ncclSuccess ? background : query;
  }
  if (status != ncclSuccess) throw_nccl(call, status, handle_->communicator);
}

void NcclGroup::run(const char* call, std::chrono::milliseconds timeout,
                    FunctionRef<ncclResult_t(ncclComm_t)> body) {
  Failure failure;
  {
    const std::lock_guard lock(handle_->call_mutex);
    raise_if_failed();
    const CudaDeviceGuard guard(device_.index);
    try {
      return complete(call, body(handle_->communicator), Clock::now() + timeout);
    } catch (...) {
      failure = Failure::from_current();
    }
  }
  abort(failure);
  raise_if_failed();
}

// What ncclCommSplit returns tells nothing but errors: of a communicator that does not block it
// says ncclSuccess (in all versions from 2.18 to 2.30) while NCCL's thread is at work. That thread
// writes the part when it ends, which may be after a failure here; the whole is in progress until
// then.
IntrusivePtr<NcclGroup> NcclGroup::split(int color, int key, std::chrono::milliseconds timeout) {
  const auto slot = handle_->new_split();
  ncclConfig_t config = non_blocking();
  run("ncclCommSplit", timeout, [&](ncclComm_t whole) {
    const ncclResult_t status =
        ncclCommSplit(whole, color < 0 ? NCCL_SPLIT_NOCOLOR : color, key, &*slot, &config);
    return status == ncclSuccess ? ncclInProgress : status;
  });
  ncclComm_t part = handle_->take_split(slot);
  if (!part) {
    raise_if_failed();  // the abort was faster, and took it
    return nullptr;
  }
  auto group = make_intrusive<NcclGroup>(device_, part, endings_);
  group->run("ncclCommSplit", timeout, [](ncclComm_t) { return ncclInProgress; });
  return group;
}

std::list<ncclComm_t>::iterator NcclGroup::Handle::new_split() {
  const std::lock_guard lock(splits_mutex);
  return splits.insert(splits.end(), nullptr);
}

ncclComm_t NcclGroup::Handle::take_split(std::list<ncclComm_t>::iterator slot) {
  const std::lock_guard lock(splits_mutex);
  const ncclComm_t part = *slot;
  splits.erase(slot);
  return part;
}

// Those whose callers had an exception instead.
std::vector<ncclComm_t> NcclGroup::Handle::take_unclaimed_splits() {
  const std::lock_guard lock(splits_mutex);
  std::vector<ncclComm_t> parts;
  for (ncclComm_t& part : splits)
    if (part) parts.push_back(std::exchange(part, nullptr));
  return parts;
}

void NcclGroup::poll_background() {
  std::unique_lock lock(handle_->call_mutex, std::try_to_lock);
  if (!lock || has_failed() || !handle_->communicator)
    return;  // whoever is in a call looks for errors itself
  ncclResult_t background = ncclSuccess;
  const ncclResult_t query = ncclCommGetAsyncError(handle_->communicator, &background);
  const ncclResult_t status = query == ncclSuccess ? background : query;
  if (status == ncclSuccess || status == ncclInProgress) return;
  Failure failure;
  try {
    throw_nccl("a collective", status, handle_->communicator);
  } catch (...) {
    failure = Failure::from_current();
  }
  lock.unlock();
  abort(failure);
}

void NcclGroup::abort(const Failure& failure, Lost lost) noexcept {
  {
    const std::lock_guard lock(failure_mutex_);
    if (failure_) return;
    failure_ = failure;
    if (lost == Lost::everything) count_lost(1);  // of this one nobody is told
    if (*lost_ > 0) keep(failure);  // before the abort lets kernels return, and results look good
    has_failed_.store(true, std::memory_order_release);  // ends the polling of a call under way
  }
  endings_->start(device_, [handle = handle_] { abort_communicator(*handle); });
}

// Whoever comes for the mutex after this finds that the group has failed, and need not wait for
// NCCL.
void NcclGroup::abort_communicator(Handle& handle) noexcept {
  ncclComm_t communicator = nullptr;
  {
    const std::unique_lock lock(handle.call_mutex, call_grace_period);
    communicator = handle.communicator.exchange(nullptr);
  }
  if (communicator) ncclCommAbort(communicator);
  handle.is_gone = true;
  for (ncclComm_t part : handle.take_unclaimed_splits()) ncclCommAbort(part);
}

void NcclGroup::keep(const Failure& failure) noexcept {
  try {
    kept_ = keep_background_failure([failure, lost = lost_] {
      if (*lost > 0) failure.raise();
    });
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

void NcclGroup::set_idle_check(std::function<bool()> is_idle) {
  const std::lock_guard lock(idle_mutex_);
  is_idle_ = std::move(is_idle);
}

void NcclGroup::finish() noexcept {
  if (has_failed()) return;
  const std::lock_guard lock(handle_->call_mutex);
  ncclComm_t communicator = handle_->communicator.exchange(nullptr);
  if (!communicator) return;
  deregister_all(communicator);
  endings_->start(device_, [communicator] { finalize_and_destroy(communicator); });
}

}  // namespace lockstep::comm
