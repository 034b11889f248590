#include "comm/nccl/nccl_backend.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <sstream>

#include "comm/nccl/launch_order.hpp"
#include "comm/nccl/nccl_calls.hpp"
#include "comm/nccl/nccl_scaling.hpp"
#include "comm/nccl/poll_pause.hpp"
#include "comm/nccl/stream_order.hpp"
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

NcclBackend::NcclBackend(IntrusivePtr<NcclGroup> group, std::string name,
                         const CommunicatorOptions& options, ComparisonPtr comparison,
                         GroupMembership membership)
    : CommunicatorBackend(group->rank(), group->size(), std::move(name), options),
      group_(std::move(group)),
      comparison_(options.check_signatures ? std::move(comparison) : nullptr),
      stream_(group_->device(), StreamPriority::high),
      barrier_block_(zeroed_float(stream_)),
      membership_(std::move(membership)),
      monitor_([this] { monitor(); }) {
  membership_.listen(*this);
}

NcclBackend::~NcclBackend() {
  leave();
  device_allocator(device()).deallocate(barrier_block_);
}

// The communicator's own end is waited for with the last group's: the other ranks may still use it.
void NcclBackend::leave() noexcept {
  std::call_once(left_, [this] {
    const bool is_unwinding = std::uncaught_exceptions() > 0;
    if (is_unwinding) abort("rank " + std::to_string(rank()) + " is unwinding");
    if (comparison_ && !is_unwinding) comparison_->flush();  // before the others can leave
    drain();  // while the monitor still watches what is under way
    has_left_ = true;
    group_->finish();
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    monitor_.join();
    announce_failure();
    if (name() == "world")
      group_->wait_for_endings(is_unwinding ? std::chrono::seconds(1) : options().leave_timeout);
  });
}

// --- operations
// --------------------------------------------------------------------------------------

Work NcclBackend::submit(std::span<Operation> operations) {
  if (has_left_) refuse_after_leaving();
  if (StepRecording* recording = StepRecording::current()) [[unlikely]]
    return capture(operations, *recording);
  number(operations, sequence_);
  for (const Operation& operation : operations) tell(operation);
  const WorkPtr work = queue(operations);
  {
    const std::lock_guard lock(mutex_);
    limit_wait_for_the_gone(*work);
    in_flight_.push_back(work);
  }
  if (group_->has_failed()) work->wait();  // throws: a failure before did not count it as lost
  return Work(work);
}

NcclBackend::WorkPtr NcclBackend::queue(std::span<Operation> operations) {
  wait_for_callers(operations);
  LaunchOrder::of(device()).take_turn(stream_);
  auto work = make_intrusive<NcclWork>(group_, stream_, operations);
  std::deque<NcclScaling> scalings;
  for (Operation& operation : operations) scalings.emplace_back(operation, rank(), size(), stream_);
  enqueue_all(operations);
  for (const NcclScaling& scaling : scalings) scaling.finish();
  work->finish(stream_);
  return work;
}

// The streams on which the operations were called: those of a batch may differ.
void NcclBackend::wait_for_callers(std::span<const Operation> operations) {
  const StreamRef current = current_stream(device());
  order_after(current, stream_);
  StreamRef last = current;
  for (const Operation& operation : operations) {
    if (!operation.stream || *operation.stream == last) continue;
    last = *operation.stream;
    order_after(last, stream_);
  }
}

void NcclBackend::enqueue_all(std::span<const Operation> operations) {
  const char* const call = operations.size() == 1 ? name_of(operations.front().kind) : "batch";
  try {
    group_->run(call, timeout_of(operations), [&](ncclComm_t communicator) {
      return enqueue(operations, {.communicator = communicator,
                                  .rank = rank(),
                                  .size = size(),
                                  .scratch = barrier_block_->data,
                                  .stream = static_cast<cudaStream_t>(stream_.ref().handle)});
    });
  } catch (...) {
    try_order_after(stream_, current_stream(device()));
    throw;
  }
}

// Before NCCL hears of it: a call that the others do not make may never return.
void NcclBackend::tell(const Operation& operation) {
  if (!comparison_ || size() == 1) return;
  const Signature signature(operation);
  if (!operation.is_point_to_point()) return comparison_->note(name(), rank(), size(), signature);
  std::pair way{rank(), operation.peer};
  if (operation.kind == OperationKind::receive) std::swap(way.first, way.second);
  comparison_->note_message(name(), rank(), size(), signature, messages_[way]++);
}

// NCCL wants no operation under way while it splits: the exchange of the plan was the last.
std::unique_ptr<CommunicatorBackend> NcclBackend::split(const SplitPlan& plan) {
  GroupMembership membership = membership_.part(plan.name);
  auto part = group_->split(plan.color, plan.place, options().timeout);
  if (!part) return nullptr;
  return std::make_unique<NcclBackend>(std::move(part), plan.name, options(), comparison_,
                                       std::move(membership));
}

void NcclBackend::declare(std::uint64_t subject, const std::string& end) {
  membership_.declare(name(), rank(), size(), subject, end);
}

// --- failures
// ------------------------------------------------------------------------------------------

void NcclBackend::abort(const std::string& reason) noexcept {
  if (has_left_) return;
  group_->note_told();
  fail_under_way(Failure::from_peer(reason));
}

// For the monitor to act on: to ask the device what is under way may take a while.
void NcclBackend::group_failed(const std::string& reason) noexcept {
  if (has_left_) return;
  others_know_ = true;
  {
    const std::lock_guard lock(mutex_);
    news_ = reason;
  }
  wake_.notify_all();
}

void NcclBackend::job_failed(const std::string& reason) noexcept {
  if (has_left_) return;
  others_know_ = true;
  group_->abort(Failure::from_peer(reason));
}

// With the mutex held, so that what is submitted meanwhile is either counted as lost or finds that
// the group has failed.
void NcclBackend::fail_under_way(const Failure& failure) noexcept {
  try {
    const CudaDeviceGuard guard(device().index);
    const std::lock_guard lock(mutex_);
    if (group_->has_failed()) return;
    for (const WorkPtr& work : in_flight_) work->note_failure();
    group_->abort(failure, NcclGroup::Lost::under_way);
  } catch (...) {  // the device does not tell
    group_->abort(failure);
  }
}

void NcclBackend::announce_failure() {
  const auto failure = group_->failure();
  if (failure && !others_know_.exchange(true)) membership_.fail(failure->message());
}

std::string NcclBackend::describe_progress() const {
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
void NcclBackend::monitor() noexcept {
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

void NcclBackend::watch() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    wake_.wait_for(lock, monitor_period, [&] { return stopping_ || news_; });
    if (stopping_) return;
    lock.unlock();
    obey_news();
    if (comparison_) comparison_->flush();
    group_->poll_background();
    if (!StepRecording::is_any_open()) check_in_flight();  // a moment, and then again
    announce_failure();
    lock.lock();
  }
}

void NcclBackend::obey_news() {
  std::unique_lock lock(mutex_);
  const auto reason = std::exchange(news_, std::nullopt);
  lock.unlock();
  if (reason) fail_under_way(Failure::from_peer(*reason));
}

void NcclBackend::check_in_flight() {
  if (const auto failure = failure_in_flight()) fail_under_way(*failure);
}

// The first operation that has not ended is the one under way.
std::optional<Failure> NcclBackend::failure_in_flight() {
  const std::lock_guard lock(mutex_);
  while (!in_flight_.empty() && in_flight_.front()->is_completed()) in_flight_.pop_front();
  if (in_flight_.empty()) return std::nullopt;
  NcclWork& work = *in_flight_.front();
  const auto context = [&] {
    return "rank " + std::to_string(rank()) + " of " + name() + ", in " + work.description() + ": ";
  };
  if (const Departure* gone = departures_.before(work.collective()))
    return Failure::from_peer(context() + comm::describe(*gone, name()));
  const auto overdue = work.overdue();
  if (!overdue) return std::nullopt;
  if (const Departure* gone = departures_.among(work.partners()))
    return Failure::from_peer(context() + comm::describe(*gone, name()));
  return Failure::timeout(context() + *overdue);
}

// --- members that leave --------------------------------------------------------------------------

// The monitor acts on it, once what the others did join has ended.
void NcclBackend::member_left(const Departure& departure) {
  const std::lock_guard lock(mutex_);
  departures_.add(departure);
  for (const WorkPtr& work : in_flight_) limit_wait_for_the_gone(*work);
}

// What a rank sent before it left is on its way, and taken out once this rank's device comes to it.
// Which messages of a group have come, NCCL does not say: as long as one of its ranks is there, all
// of it may be waiting for that one.
void NcclBackend::limit_wait_for_the_gone(NcclWork& work) {
  constexpr auto wait_for_the_gone = std::chrono::milliseconds(500);
  const auto is_gone = [&](int rank) { return departures_.among({&rank, 1}) != nullptr; };
  if (!work.partners().empty() && std::ranges::all_of(work.partners(), is_gone))
    work.limit_run(wait_for_the_gone);
}

// Leaves once what this rank joined has ended: the others may abort when they hear of it, and with
// the group they end what is still under way here. However much else the device has to do first, it
// is waited for; what then does not end the monitor makes a failure, though nobody waits for it.
void NcclBackend::drain() {
  if (std::uncaught_exceptions() > 0) return;
  const auto is_idle = [&] {
    const std::lock_guard lock(mutex_);
    const auto first = std::ranges::find_if_not(in_flight_, &NcclWork::is_completed);
    if (first == in_flight_.end()) return true;
    (*first)->limit_run(options().leave_timeout);
    return false;
  };
  for (PollPause polling; !is_idle();) polling.pause();
  if (!group_->has_failed()) membership_.leave({rank(), sequence_});
}

// --- creation
// ------------------------------------------------------------------------------------------

namespace {

std::string refusal(const Bootstrap&, Device device) {
  return device.is_cuda() ? "" : "it works on GPUs";
}

std::unique_ptr<CommunicatorBackend> make(WorldPlan&& plan) {
  Bootstrap& bootstrap = plan.bootstrap;
  LaunchOrder::ask_nccl_for_it();
  ncclUniqueId id{};
  std::string bytes;
  // An empty id tells the others that rank 0 has none, so that nobody waits for it.
  if (bootstrap.rank() == 0 && ncclGetUniqueId(&id) == ncclSuccess)
    bytes.assign(id.internal, sizeof id.internal);
  bytes = bootstrap.broadcast_bytes(bytes, 0, "unique id of NCCL");
  LOCKSTEP_CHECK(bytes.size() == sizeof id.internal, Unsupported,
                 "rank 0 got no unique id from NCCL: ", ncclGetLastError(nullptr));
  std::memcpy(id.internal, bytes.data(), bytes.size());
  auto group = make_intrusive<NcclGroup>(plan.device, id, bootstrap.rank(), bootstrap.size(),
                                         plan.options.timeout);
  return std::make_unique<NcclBackend>(std::move(group), "world", plan.options, plan.comparison,
                                       std::move(plan.membership));
}

}  // namespace

const BackendFactory& nccl_backend() {
  static const BackendFactory factory{"nccl", refusal, make};
  return factory;
}

}  // namespace lockstep::comm
