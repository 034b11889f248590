#include <array>
#include <cstddef>
#include <deque>
#include <utility>

#include "comm/nccl/launch_order.hpp"
#include "comm/nccl/nccl_backend.hpp"
#include "comm/nccl/nccl_calls.hpp"
#include "comm/nccl/nccl_scaling.hpp"
#include "comm/signature.hpp"
#include "comm/stream_order.hpp"

// How operations come to NCCL.

namespace lockstep::comm {
namespace {

// @param operations for which they are exchanged.
std::array<Operation, 2> tiny_messages(int peer, NcclScratch& scratch,
                                       std::span<const Operation> operations) {
  Operation send{.kind = OperationKind::send,
                 .dtype = DType::f32,
                 .input = reinterpret_cast<const std::byte*>(&scratch.sent),
                 .count = 1,
                 .peer = peer,
                 .label = "first contact, for " + describe(operations),
                 .timeout = timeout_of(operations)};
  Operation receive = send;
  receive.kind = OperationKind::receive;
  receive.input = nullptr;
  receive.output = reinterpret_cast<std::byte*>(&scratch.received);
  return {std::move(send), std::move(receive)};
}

// The monitor tells more of what is overdue than a call that waits, and is given the time for it.
constexpr auto monitor_precedence = Inquiry::answer_timeout + std::chrono::seconds(1);

}  // namespace

Work NcclBackend::submit(std::span<Operation> operations) {
  if (has_left_) refuse_after_leaving();
  if (StepRecording* recording = StepRecording::current()) [[unlikely]]
    return capture(operations, *recording);
  number(operations, sequence_);
  // What a group that has failed refuses says nothing of what the ranks do.
  if (!group_->has_failed())
    for (const Operation& operation : operations) tell(operation);
  make_contacts(operations);
  const WorkPtr work = queue(operations);
  contacts_.note(operations);
  raise_if_lost(*work);
  return Work(work);
}

// Each as an operation of its own: one with a rank that has left ends like any message to it.
void NcclBackend::make_contacts(std::span<const Operation> operations) {
  for (const int peer : contacts_.first_reached_by(operations)) {
    auto messages = tiny_messages(peer, scratch(), operations);
    number(messages, sequence_);
    raise_if_lost(*queue(messages));
    contacts_.note(peer);
  }
}

NcclBackend::WorkPtr NcclBackend::queue(std::span<Operation> operations, bool leaves_out) {
  order_after_callers(operations, stream_);
  LaunchOrder::of(device()).take_turn(stream_);
  auto work = make_intrusive<NcclWork>(group_, stream_, operations);
  std::deque<NcclScaling> scalings;
  for (Operation& operation : operations) scalings.emplace_back(operation, rank(), size(), stream_);
  // Nothing of a captured step runs before its launch.
  const bool is_watched = !StepRecording::current();
  if (is_watched) begin_watch(work);
  try {
    if (!leaves_out) enqueue_all(operations);
    for (const NcclScaling& scaling : scalings) scaling.finish();
    work->finish(stream_);
  } catch (...) {
    if (is_watched) end_watch(work);
    throw;
  }
  return work;
}

// Before NCCL is asked: it connects ranks on the host, where it waits for one that has left or
// failed as a message does on the device.
void NcclBackend::begin_watch(const WorkPtr& work) {
  const std::lock_guard lock(mutex_);
  limit_wait_for_the_gone(*work);
  in_flight_.push_back(work);
  longest_timeout_ = std::max(longest_timeout_.load(), work->timeout());
  if (const auto last = work->collective()) begun_ = *last + 1;
}

// What the group failed in is told of.
void NcclBackend::end_watch(const WorkPtr& work) noexcept {
  const std::lock_guard lock(mutex_);
  if (!group_->has_failed()) std::erase(in_flight_, work);
}

// A failure from before it was queued did not count it as lost. One that comes now has the mutex.
void NcclBackend::raise_if_lost(NcclWork& work) {
  {
    const std::lock_guard lock(mutex_);
    if (!group_->has_failed()) return;
  }
  work.wait();  // throws
}

void NcclBackend::enqueue_all(std::span<const Operation> operations) {
  const char* const call = operations.size() == 1 ? name_of(operations.front().kind) : "batch";
  try {
    group_->run(call, timeout_of(operations) + monitor_precedence, [&](ncclComm_t communicator) {
      return enqueue(operations, {.communicator = communicator,
                                  .rank = rank(),
                                  .size = size(),
                                  .scratch = &scratch(),
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
  if (!operation.is_point_to_point())
    return comparison_->note(name(), rank(), size(), signature, operation.label);
  std::pair way{rank(), operation.peer};
  if (operation.kind == OperationKind::receive) std::swap(way.first, way.second);
  comparison_->note_message(name(), rank(), size(), signature, messages_[way]++);
}

}  // namespace lockstep::comm
