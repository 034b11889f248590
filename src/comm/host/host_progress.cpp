#include <algorithm>
#include <chrono>
#include <utility>

#include <sched.h>
#include <sys/prctl.h>

#include "comm/host/host_backend.hpp"
#include "comm/host/pieces.hpp"

// Which thread runs an operation, and how. Operations run in the order of the calls, one at a time:
// whoever is to run the first of the queue has claimed it, takes it with the mutex held, and ends
// it so.

namespace lockstep::comm::host {
namespace {

// What waits in vain for somebody to wait for it runs on the progress thread after so long, or
// twice that. In a burst of small operations that thread wakes up as often, to see that it is not
// needed.
constexpr auto offer_time = std::chrono::microseconds(100);

// Moving more takes longer than it takes to wake a thread, and shall go on while the caller
// computes. Messages too: the one that receives them may wait for them long before the sender does.
bool is_small(std::span<const Operation> operations) {
  constexpr std::int64_t most_bytes = 64 << 10;
  std::int64_t bytes = 0;
  for (const Operation& operation : operations) {
    if (operation.is_point_to_point()) return false;
    bytes += bytes_of(operation, operation.count);
  }
  return bytes <= most_bytes;
}

// Then a rank that waits for a message tells so. Who waits in a collective is found by it. Later in
// a large group: if all of its ranks wait, rank 0 passes on as many words as their number squared.
Clock::duration long_wait(Clock::duration timeout, int size) {
  const auto grace =
      std::max<Clock::duration>(std::chrono::seconds(1), size * std::chrono::milliseconds(30));
  return std::min<Clock::duration>(grace, timeout / 2);
}

}  // namespace

// The mutex is held. True if the progress thread must be woken: for an operation that is its own,
// or so that it looks after one that is offered.
bool HostBackend::enqueue(const WorkPtr& work) {
  const bool is_offered = queue_.empty() && !running_ && is_small(work->operations());
  if (is_offered) {
    work->offer_to_waiters(*this);
    ++offers_;
  }
  queue_.push_back(work);
  has_work_.store(true, std::memory_order_release);
  return !is_offered || std::exchange(sleeps_, false);
}

// Nothing was before it when it was offered, and nothing passes it. Sums are those of the progress
// thread, which other ranks may use, whatever the program has made of this thread's floats since.
void HostBackend::run_claimed(HostWork& /*first*/) {
  const FloatModeScope scope(float_mode_);
  WorkPtr work;
  {
    const std::lock_guard lock(mutex_);
    work = take_first();
  }
  execute(work);
}

// --- the progress thread -------------------------------------------------------------------------

void HostBackend::progress() {
  prctl(PR_SET_NAME, "lockstep-comm");
  // Waiting for a late peer sleeps in short naps; the default slack would triple them.
  prctl(PR_SET_TIMERSLACK, 1000UL);
  while (const WorkPtr work = next()) execute(work);
}

HostBackend::WorkPtr HostBackend::next() {
  // The next collective of a small step is often microseconds away; a sleep costs more than that.
  constexpr int yields_before_sleep = 20;
  for (int i = 0; i < yields_before_sleep && !has_work_.load(std::memory_order_acquire); ++i)
    sched_yield();
  std::unique_lock lock(mutex_);
  while (true) {
    if (!running_ && queue_.empty()) {
      if (!questions_.empty()) {
        answer_who_is_behind(lock);
        continue;
      }
      if (stopping_) return nullptr;
    }
    if (!running_ && !queue_.empty() && is_due(*queue_.front()) && queue_.front()->claim())
      return take_first();
    sleep(lock);
  }
}

bool HostBackend::is_due(const HostWork& work) const {
  return !work.is_offered() || queue_.size() > 1 || stopping_ ||
         Clock::now() - work.submitted() >= offer_time;
}

// While small operations come one after the other, no caller has to wake this thread: it looks by
// itself.
void HostBackend::sleep(std::unique_lock<std::mutex>& lock) {
  const bool is_on_offer = !running_ && !queue_.empty();
  if (is_on_offer || std::exchange(seen_offers_, offers_) != offers_) {
    wake_.wait_for(lock, offer_time);
    return;
  }
  sleeps_ = true;
  wake_.wait(lock);
  sleeps_ = false;
}

// --- whichever thread runs -----------------------------------------------------------------------

// The mutex is held, and the first of the queue is claimed.
HostBackend::WorkPtr HostBackend::take_first() {
  running_ = std::move(queue_.front());
  queue_.pop_front();
  has_work_.store(!queue_.empty() || stopping_, std::memory_order_release);
  return running_;
}

void HostBackend::execute(const WorkPtr& work) noexcept { retire(work, carry_out(*work)); }

// Whoever finds the work complete may end the backend, which waits for the mutex: nothing of it is
// used after that.
void HostBackend::retire(const WorkPtr& work, std::optional<Failure> failure) {
  const std::lock_guard lock(mutex_);
  running_ = nullptr;
  running_since_.store({}, std::memory_order_relaxed);
  const bool has_failed = failure.has_value();
  work->finish(std::move(failure));
  if (has_failed)
    failed_ = work;
  else
    ended_.add(work);
  if (!queue_.empty() || stopping_ || !questions_.empty()) wake_.notify_one();
  if (stopping_) drained_.notify_all();
}

std::optional<Failure> HostBackend::carry_out(HostWork& work) {
  std::optional<Failure> failure = begin(work);
  return failure ? failure : run(work.operations());
}

std::optional<Failure> HostBackend::begin(HostWork& work) {
  const Operations operations = work.operations();
  std::unique_lock lock(mutex_);
  const auto now = Clock::now();
  work.start(now);
  if (const Departure* gone = departures_.before(last_collective(operations)); gone && !failure_)
    failure_ = Failure::from_peer(context(operations) + ": " + comm::describe(*gone, name()));
  if (failure_) return failure_;
  if (const auto last = last_collective(operations)) begun_ = *last + 1;
  count_messages(operations);
  if (std::optional<Failure> missed = failure_of_missed_message()) {
    failure_ = missed;
    lock.unlock();
    executor_->abort(missed->message());
    return missed;
  }
  if (size() > 1) {
    const auto timeout = timeout_of(operations);
    const bool has_partners = !partners_of(operations).empty();
    deadline_.set(now + timeout,
                  has_partners ? now + long_wait(timeout, size()) : Clock::time_point::max());
    running_since_.store(now, std::memory_order_relaxed);
  }
  if (!departures_.empty()) limit_waits_for_the_gone(operations);
  return std::nullopt;
}

Clock::duration HostBackend::running_for() const noexcept {
  const auto since = running_since_.load(std::memory_order_relaxed);
  return since == Clock::time_point() ? Clock::duration() : Clock::now() - since;
}

std::optional<Failure> HostBackend::run(Operations operations) {
  Failure failure;
  bool is_known_to_others = false;
  try {
    executor_->run(operations, deadline_);
    return std::nullopt;
  } catch (const TransferTimeout& timeout) {
    failure = failure_of_timeout(operations, timeout);
  } catch (const PeerGone& gone) {
    failure = failure_of_gone_peer(operations, gone);
    is_known_to_others = partners_of(operations).empty() && executor_->is_gone_peer_seen_by_all() &&
                         !gone.is_seen_by_few;
  } catch (...) {
    failure = Failure::from_current();
    failure.add_context(context(operations));
    is_known_to_others = failure.is_from_peer() || is_seen_by_all(failure, operations);
  }
  fail(failure);
  if (!is_known_to_others) executor_->abort(failure.message());
  executor_->quiesce();
  const std::lock_guard lock(mutex_);
  return failure_;
}

bool HostBackend::is_seen_by_all(const Failure& failure, Operations operations) const {
  return failure.is_mismatch() && partners_of(operations).empty() &&
         executor_->is_mismatch_seen_by_all();
}

}  // namespace lockstep::comm::host
