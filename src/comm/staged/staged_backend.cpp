#include "comm/staged/staged_backend.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include <sys/prctl.h>

#include "comm/backends.hpp"
#include "comm/poll_pause.hpp"
#include "comm/stream_order.hpp"
#include "lockstep/comm/errors.hpp"
#include "runtime/step_recording.hpp"

namespace lockstep::comm::staged {

StagedBackend::StagedBackend(Device device, std::unique_ptr<CommunicatorBackend> host)
    : CommunicatorBackend(host->rank(), host->size(), host->name(), host->options()),
      device_(device),
      kind_(std::string(host->kind()) + ", staged"),
      host_(std::move(host)),
      to_host_(device, StreamPriority::high),
      to_device_(device, StreamPriority::high),
      worker_([this] { run(); }) {
  host_->before_leaving(0, [this] { leave(); });
}

StagedBackend::~StagedBackend() {
  leave();
  host_.reset();  // calls what this has asked it to call
}

// --- the caller's side ---------------------------------------------------------------------------

Work StagedBackend::submit(std::span<Operation> operations) {
  if (StepRecording* const recording = StepRecording::current()) [[unlikely]] {
    recording->refuse("a collective over " + kind_ +
                      ", whose data go through the host: use nccl, or run the step eagerly");
    return Work();
  }
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) refuse_after_leaving();
  }
  std::uint64_t next = sequence_;
  number(operations, next);
  order_after_callers(operations, to_host_);
  const auto work = make_intrusive<StagedWork>(operations, rank(), device_);
  if (!has_failed_ && !reads_what_is_on_its_way(*work)) work->copy_in(to_host_);
  sequence_ = next;
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(work);
  }
  wake_.notify_one();
  return Work(work);
}

// Operations run in the order of the calls: what they hand to each other is not copied before.
bool StagedBackend::reads_what_is_on_its_way(const StagedWork& work) const {
  const auto hands_over = [&](const WorkPtr& earlier) {
    return earlier && earlier->writes_what_is_read_by(work);
  };
  const std::lock_guard lock(mutex_);
  return hands_over(running_) || std::ranges::any_of(queue_, hands_over);
}

std::unique_ptr<CommunicatorBackend> StagedBackend::split(const SplitPlan& plan) {
  auto part = host_->split(plan);
  return part ? std::make_unique<StagedBackend>(device_, std::move(part)) : nullptr;
}

void StagedBackend::declare(std::uint64_t subject, const std::string& end) {
  host_->declare(subject, end);
}

void StagedBackend::abort(const std::string& reason) noexcept {
  const Failure failure = Failure::from_peer(reason);
  failure.note_told();
  fail(failure);
}

std::string StagedBackend::describe_progress() const {
  std::string text = host_->describe_progress();
  const std::lock_guard lock(mutex_);
  if (!running_) return text;
  const std::string own = "; " + kind_ + ": " + running_->state() + ", " +
                          std::to_string(queue_.size()) + " more queued";
  return text.insert(std::min(text.find('\n'), text.size()), own);
}

// --- the worker ----------------------------------------------------------------------------------

void StagedBackend::run() {
  prctl(PR_SET_NAME, "lockstep-stage");
  while (const WorkPtr work = next()) carry_out(*work);
}

StagedBackend::WorkPtr StagedBackend::next() {
  std::unique_lock lock(mutex_);
  if (running_) ++ended_;
  running_ = nullptr;
  progressed_.notify_all();
  wake_.wait(lock, [&] { return !queue_.empty() || stopping_; });
  if (queue_.empty()) return nullptr;
  running_ = std::move(queue_.front());
  queue_.pop_front();
  return running_;
}

void StagedBackend::carry_out(StagedWork& work) {
  bool is_done = false;
  try {
    is_done = wait_for_device(work) && exchange(work) && copy_back(work);
  } catch (...) {
    Failure failure = Failure::from_current();
    failure.add_context(context(work));
    fail(failure);
  }
  if (is_done)
    work.finish();
  else
    work.finish(failure());
}

// Polls: a host that blocks in the driver could not be woken by an abort. What other ranks say is
// looked for less often, as that takes system calls.
bool StagedBackend::wait_for_device(StagedWork& work) {
  if (has_failed_) return false;
  work.copy_in(to_host_);
  constexpr auto look_every = std::chrono::milliseconds(1);
  const auto deadline = WorkTimes::Clock::now() + work.timeout();
  auto next_look = WorkTimes::Clock::now() + look_every;
  for (PollPause polling; !has_failed_; polling.pause()) {
    if (work.is_copied_in()) return true;
    const auto now = WorkTimes::Clock::now();
    if (now > next_look) {
      if (has_group_failed()) return false;
      next_look = now + look_every;
    }
    if (now > deadline)
      LOCKSTEP_THROW(Timeout, "timed out after ", work.timeout().count(), " ms, waiting for what ",
                     device_, " has to do before");
  }
  return false;
}

bool StagedBackend::has_group_failed() {
  try {
    host_->check();
    return false;
  } catch (...) {
    note_failure(Failure::from_current());
    return true;
  }
}

// The other ranks hear of a failure from the backend that meets it.
bool StagedBackend::exchange(StagedWork& work) {
  try {
    host_->submit(work.start()).synchronize();
    return true;
  } catch (...) {
    note_failure(Failure::from_current());
    return false;
  }
}

bool StagedBackend::copy_back(StagedWork& work) {
  work.copy_back(to_device_);
  for (PollPause polling; !work.is_copied_back(); polling.pause())
    if (has_failed_) return false;
  return true;
}

void StagedBackend::fail(const Failure& failure) noexcept {
  if (note_failure(failure)) host_->abort(failure.message());
}

bool StagedBackend::note_failure(const Failure& failure) noexcept {
  const std::lock_guard lock(mutex_);
  if (failure_) return false;
  failure_ = failure;
  has_failed_ = true;
  return true;
}

std::optional<Failure> StagedBackend::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::string StagedBackend::context(const StagedWork& work) const {
  return "rank " + std::to_string(rank()) + " of " + name() + ", in " + work.description();
}

// --- the end -------------------------------------------------------------------------------------

void StagedBackend::leave() noexcept {
  std::call_once(left_, [this] {
    call_last();
    // While an exception unwinds, the peers may never come to what is still queued.
    if (std::uncaught_exceptions() > 0 && is_under_way())
      abort("rank " + std::to_string(rank()) + " is unwinding");
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    drain();
    worker_.join();
  });
}

bool StagedBackend::is_under_way() const {
  const std::lock_guard lock(mutex_);
  return !queue_.empty() || (running_ && !running_->is_exchanged());
}

// However much else the device has to do first, it is waited for; the other ranks are not.
void StagedBackend::drain() {
  std::unique_lock lock(mutex_);
  std::uint64_t seen = ended_;
  const auto is_drained = [&] { return !running_ && queue_.empty(); };
  const auto has_news = [&] { return is_drained() || ended_ != seen; };
  while (progressed_.wait_for(lock, options().leave_timeout, has_news) ||
         (running_ && running_->waits_for_device())) {
    if (is_drained()) return;
    seen = ended_;
  }
  const std::string pending = (running_ ? running_ : queue_.front())->description();
  lock.unlock();
  fail(Failure::from_peer("rank " + std::to_string(rank()) + " of " + name() +
                          " left the group with " + pending + " still under way after " +
                          std::to_string(options().leave_timeout.count()) + " ms"));
}

}  // namespace lockstep::comm::staged

namespace lockstep::comm {

std::unique_ptr<CommunicatorBackend> make_staged(Device device,
                                                 std::unique_ptr<CommunicatorBackend> host) {
  return std::make_unique<staged::StagedBackend>(device, std::move(host));
}

}  // namespace lockstep::comm
