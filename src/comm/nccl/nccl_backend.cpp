#include "comm/nccl/nccl_backend.hpp"

#include <cstring>
#include <exception>

#include "comm/nccl/launch_order.hpp"
#include "comm/nccl/nccl_calls.hpp"
#include "comm/nccl/nccl_scaling.hpp"
#include "comm/stream_order.hpp"
#include "lockstep/runtime/device_runtime.hpp"

namespace lockstep::comm {
namespace {

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
    call_last();
    const bool is_unwinding = std::uncaught_exceptions() > 0;
    if (is_unwinding && is_under_way()) abort("rank " + std::to_string(rank()) + " is unwinding");
    if (comparison_ && !is_unwinding) comparison_->flush();  // before the others can leave
    drain();  // while the monitor still watches what is under way
    has_left_ = true;
    end_captured_steps();
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

Work NcclBackend::submit(std::span<Operation> operations) {
  if (has_left_) refuse_after_leaving();
  if (StepRecording* recording = StepRecording::current()) [[unlikely]]
    return capture(operations, *recording);
  number(operations, sequence_);
  // What a group that has failed refuses says nothing of what the ranks do.
  if (!group_->has_failed())
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

NcclBackend::WorkPtr NcclBackend::queue(std::span<Operation> operations, bool leaves_out) {
  order_after_callers(operations, stream_);
  LaunchOrder::of(device()).take_turn(stream_);
  auto work = make_intrusive<NcclWork>(group_, stream_, operations);
  std::deque<NcclScaling> scalings;
  for (Operation& operation : operations) scalings.emplace_back(operation, rank(), size(), stream_);
  if (!leaves_out) enqueue_all(operations);
  for (const NcclScaling& scaling : scalings) scaling.finish();
  work->finish(stream_);
  return work;
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
  auto part = group_->split(plan.color, plan.place, *options().timeout);
  if (!part) return nullptr;
  return std::make_unique<NcclBackend>(std::move(part), plan.name, options(), comparison_,
                                       std::move(membership));
}

void NcclBackend::declare(std::uint64_t subject, const std::string& end) {
  membership_.declare(name(), rank(), size(), subject, end);
}

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
                                         *plan.options.timeout);
  return std::make_unique<NcclBackend>(std::move(group), "world", plan.options, plan.comparison,
                                       std::move(plan.membership));
}

}  // namespace

const BackendFactory& nccl_backend() {
  static const BackendFactory factory{"nccl", refusal, make};
  return factory;
}

}  // namespace lockstep::comm
