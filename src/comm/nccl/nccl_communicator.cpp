#include "comm/nccl/nccl_communicator.hpp"

#include <cstring>
#include <sstream>

#include "comm/nccl/nccl_calls.hpp"
#include "comm/nccl/nccl_scaling.hpp"
#include "lockstep/runtime/device_runtime.hpp"
#include "runtime/cuda/device_guard.hpp"

namespace lockstep::comm {
namespace {

constexpr auto monitor_period = std::chrono::milliseconds(50);

MemoryBlock* zeroed_float(StreamRef stream) {
  MemoryBlock* const block = device_allocator(stream.device).allocate(sizeof(float), stream);
  device_runtime(stream.device.type).fill_bytes(block->data, 0, sizeof(float), stream);
  return block;
}

}  // namespace

NcclCommunicator::NcclCommunicator(IntrusivePtr<NcclGroup> group, std::string name,
                                   const CommunicatorOptions& options, ComparisonPtr comparison)
    : OperationCommunicator(group->rank(), group->size(), std::move(name), options),
      group_(std::move(group)),
      comparison_(options.check_signatures ? std::move(comparison) : nullptr),
      stream_(group_->device(), StreamPriority::high),
      barrier_block_(zeroed_float(stream_)),
      monitor_([this] { monitor(); }) {}

NcclCommunicator::~NcclCommunicator() {
  group_->finish();  // while the monitor still watches what is under way
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  monitor_.join();
  if (comparison_) comparison_->flush();
  device_allocator(device()).deallocate(barrier_block_);
}

// --- operations
// --------------------------------------------------------------------------------------

Work NcclCommunicator::submit(Operation operation) {
  operation.sequence = operation.is_point_to_point() ? sequence_ : sequence_++;
  const Signature signature(operation);
  tell(signature);
  Event ready(device());
  ready.record(current_stream(device()));
  ready.wait(stream_);
  auto work = make_intrusive<NcclWork>(group_, stream_, signature,
                                       NcclGroup::Clock::now() + operation.timeout);
  const NcclScaling scaling(operation, rank(), size(), stream_);
  group_->run(name_of(operation.kind), operation.timeout, [&](ncclComm_t communicator) {
    return enqueue(operation, {.communicator = communicator,
                               .rank = rank(),
                               .size = size(),
                               .scratch = barrier_block_->data,
                               .stream = static_cast<cudaStream_t>(stream_.ref().handle)});
  });
  scaling.finish();
  work->finish(stream_);
  const std::lock_guard lock(mutex_);
  in_flight_.push_back(work);
  return Work(work);
}

// Before NCCL hears of it: a call that the others do not make may never return.
void NcclCommunicator::tell(const Signature& signature) {
  const bool is_pair =
      signature.kind == OperationKind::send || signature.kind == OperationKind::receive;
  if (comparison_ && size() > 1 && !is_pair) comparison_->note(name(), rank(), size(), signature);
}

CommunicatorPtr NcclCommunicator::split(int color, int key) {
  // NCCL wants no operation under way while it splits.
  barrier({.label = "split"}).synchronize();
  auto part = group_->split(color, key, options().timeout);
  const std::string part_name = next_part_name(color);
  if (!part) return nullptr;
  return make_intrusive<NcclCommunicator>(std::move(part), part_name, options(), comparison_);
}

// --- failures
// ------------------------------------------------------------------------------------------

void NcclCommunicator::abort(const std::string& reason) noexcept {
  group_->note_told();
  group_->abort(Failure::from_peer(reason));
}

std::string NcclCommunicator::describe_progress() const {
  const std::lock_guard lock(mutex_);
  std::ostringstream out;
  out << "rank " << rank() << " of " << name() << ": ";
  if (in_flight_.empty())
    out << "idle";
  else
    out << "in " << in_flight_.front()->description() << ", " << in_flight_.size() - 1
        << " more queued";
  if (const auto failure = group_->failure()) out << "; failed: " << failure->message();
  return out.str();
}

// Whatever it meets is the group's failure, for whoever waits next: not the end of the process.
void NcclCommunicator::monitor() noexcept {
  try {
    // Events are asked on a thread that has chosen no device; the driver would set up the first.
    const CudaDeviceGuard guard(device().index);
    watch();
  } catch (...) {
    Failure failure = Failure::from_current();
    failure.add_context(describe_progress());
    group_->abort(failure);
  }
}

void NcclCommunicator::watch() {
  std::unique_lock lock(mutex_);
  while (!stop_.wait_for(lock, monitor_period, [&] { return stopping_; })) {
    lock.unlock();
    if (comparison_) comparison_->flush();
    group_->poll_background();
    check_in_flight();
    lock.lock();
  }
}

void NcclCommunicator::check_in_flight() {
  std::string overdue;
  {
    const std::lock_guard lock(mutex_);
    while (!in_flight_.empty() && in_flight_.front()->is_completed()) in_flight_.pop_front();
    if (in_flight_.empty() || !in_flight_.front()->is_overdue()) return;
    overdue = in_flight_.front()->description();
  }
  group_->abort(Failure::timeout("rank " + std::to_string(rank()) + " of " + name() + ", in " +
                                 overdue + ": timed out waiting for the other ranks"));
}

// --- creation
// ------------------------------------------------------------------------------------------

CommunicatorPtr make_nccl_communicator(Bootstrap& bootstrap, Device device,
                                       const CommunicatorOptions& options,
                                       const ComparisonPtr& comparison) {
  ncclUniqueId id{};
  std::string bytes;
  // An empty id tells the others that rank 0 has none, so that nobody waits for it.
  if (bootstrap.rank() == 0 && ncclGetUniqueId(&id) == ncclSuccess)
    bytes.assign(id.internal, sizeof id.internal);
  bytes = bootstrap.broadcast_bytes(bytes);
  LOCKSTEP_CHECK(bytes.size() == sizeof id.internal, Unsupported,
                 "rank 0 got no unique id from NCCL: ", ncclGetLastError(nullptr));
  std::memcpy(id.internal, bytes.data(), bytes.size());
  return make_intrusive<NcclCommunicator>(
      make_intrusive<NcclGroup>(device, id, bootstrap.rank(), bootstrap.size(), options.timeout),
      "world", options, comparison);
}

}  // namespace lockstep::comm
