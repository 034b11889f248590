#include "comm/nccl/nccl_work.hpp"

#include "comm/poll_pause.hpp"
#include "runtime/step_recording.hpp"

namespace lockstep::comm {
namespace {

std::uint64_t recording_of_thread() {
  const StepRecording* const recording = StepRecording::current();
  return recording ? recording->number() : 0;
}

}  // namespace

NcclWork::NcclWork(IntrusivePtr<NcclGroup> group, StreamRef stream,
                   std::span<const Operation> operations)
    : group_(std::move(group)),
      recording_(recording_of_thread()),
      started_(group_->device(), true),
      done_(group_->device(), true),
      first_(operations.front()),
      label_(operations.front().label),
      operations_(operations.size()),
      collective_(last_collective(operations)),
      partners_(partners_of(operations)),
      timeout_(timeout_of(operations)),
      submitted_(WorkTimes::Clock::now()),
      deadline_(submitted_ + timeout_) {
  if (!is_captured()) started_.record(stream);
}

void NcclWork::rename(std::span<const Operation> operations) {
  first_ = Signature(operations.front());
  label_ = operations.front().label;
}

void NcclWork::wait() {
  raise_if_failed();
  wait_on_current_stream();
}

// In a graph, only for what is in it.
void NcclWork::wait_on_current_stream() const {
  const std::uint64_t recording = recording_of_thread();
  if (recording == recording_) return done_.wait(current_stream(group_->device()));
  if (recording != 0)
    refuse_in_captured_step("a collective from before it is waited for", "wait before the step");
}

// Polls: a host that blocks in the driver could not be woken by an abort.
void NcclWork::synchronize() {
  refuse_in_captured_step("the host waits for a collective", "let the stream wait()");
  if (is_captured()) return raise_if_failed();
  for (PollPause polling; !has_ended(); polling.pause()) raise_if_failed();
  raise_if_failed();
}

void NcclWork::limit_run(std::chrono::milliseconds limit) {
  if (run_limit_ && *run_limit_ <= limit) return;
  run_limit_ = limit;
  run_end_.reset();
}

std::optional<NcclGroup::Clock::time_point> NcclWork::running_since() {
  if (!running_since_ && started_.query()) running_since_ = NcclGroup::Clock::now();
  return running_since_;
}

std::optional<std::string> NcclWork::overrun() {
  const auto now = NcclGroup::Clock::now();
  if (run_limit_ && !run_end_ && started_.query()) run_end_ = now + *run_limit_;
  if (run_end_ && now > *run_end_)
    return "did not end within " + std::to_string(run_limit_->count()) +
           " ms after the device had come to it";
  return std::nullopt;
}

void NcclWork::note_failure() {
  if (is_queued() && !done_.query() && !is_lost_.exchange(true)) group_->count_lost(1);
}

void NcclWork::note_told() const {
  if (is_lost_.exchange(false)) group_->count_lost(-1);
}

void NcclWork::raise_if_failed() {
  if (!group_->has_failed()) return;
  release_memory();
  note_told();
  group_->raise_if_failed();
}

// An aborted kernel may touch the memory until it ends.
void NcclWork::release_memory() noexcept {
  try {
    wait_on_current_stream();
  } catch (...) {
    // The device has failed: nothing runs on it any more.
  }
}

bool NcclWork::is_completed() const { return group_->has_failed() || is_captured() || has_ended(); }

std::exception_ptr NcclWork::exception() const {
  const auto failure = group_->failure();
  if (!failure) return nullptr;
  note_told();
  return failure->as_exception();
}

// Of a group that failed nothing is known: an abort lets kernels return early.
bool NcclWork::is_timed() const { return !group_->has_failed() && !is_captured() && has_ended(); }

std::optional<WorkTimes> NcclWork::times() const {
  if (!is_timed()) return std::nullopt;
  return WorkTimes{submitted_, started_.reached_at(), done_.reached_at()};
}

std::optional<WorkTimes::Clock::duration> NcclWork::duration() const {
  if (!is_timed()) return std::nullopt;
  const std::chrono::duration<double, std::milli> passed(started_.elapsed_ms(done_));
  return std::chrono::duration_cast<WorkTimes::Clock::duration>(passed);
}

}  // namespace lockstep::comm
