#include "comm/host/host_backend.hpp"

#include <algorithm>
#include <exception>
#include <iomanip>
#include <sstream>
#include <utility>

#include "comm/signature.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/observe/log.hpp"
#include "runtime/step_recording.hpp"

namespace lockstep::comm::host {

HostBackend::HostBackend(std::unique_ptr<Executor> executor, std::string name,
                         const CommunicatorOptions& options, GroupMembership membership)
    : CommunicatorBackend(executor->rank(), executor->size(), std::move(name), options),
      executor_(std::move(executor)),
      inquiry_(rank(), size(), membership.hub()),
      membership_(std::move(membership)) {
  deadline_.when_late([this] { tell_what_is_awaited(); });
  deadline_.when_asked([this] {
    std::unique_lock lock(mutex_);
    answer_who_is_behind(lock);
  });
  if (size() > 1) thread_ = std::thread([this] { progress(); });
  membership_.listen(*this);
}

HostBackend::~HostBackend() { leave(); }

void HostBackend::leave() noexcept {
  std::call_once(left_, [this] {
    call_last();
    // While an exception unwinds, the peers may never come to what is still queued. What is done
    // stays so: their part of it may not be.
    if (std::uncaught_exceptions() > 0 && is_under_way())
      abort("rank " + std::to_string(rank()) + " is unwinding");
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      has_work_.store(true, std::memory_order_release);
    }
    if (!thread_.joinable()) return;
    wake_.notify_all();
    drain();
    thread_.join();
    has_left_ = true;
    if (failure_) return;  // the others hear of it by itself
    warn_of_unreceived();
    membership_.leave({rank(), sequence_});
  });
}

// Small messages end at their senders before anybody receives them, who therefore hear nothing.
void HostBackend::warn_of_unreceived() noexcept {
  try {
    constexpr std::size_t shown = 4;
    const std::vector<Unreceived> messages = executor_->unreceived();
    if (messages.empty()) return;
    std::string text;
    for (std::size_t i = 0; i < std::min(messages.size(), shown); ++i)
      text += (i ? ", " : "") + ("rank " + std::to_string(messages[i].peer)) + " called " +
              messages[i].what;
    if (messages.size() > shown)
      text += " and " + std::to_string(messages.size() - shown) + " more ranks so";
    LOCKSTEP_LOG(warning, "rank ", rank(), " leaves ", name(),
                 " and has not received what was sent to it: ", text);
  } catch (...) {
    // No host memory is left, or the job is at its end: a warning less.
  }
}

bool HostBackend::is_under_way() {
  const std::lock_guard lock(mutex_);
  return !queue_.empty() || (running_ && !running_->is_completed());
}

// A late peer needs this rank's part of what nobody here waits for; one that never comes must not
// hold up the end of the program.
void HostBackend::drain() {
  std::string pending;
  {
    std::unique_lock lock(mutex_);
    const auto is_drained = [&] { return queue_.empty() && !running_; };
    if (drained_.wait_for(lock, options().leave_timeout, is_drained)) return;
    pending = (running_ ? running_ : queue_.front())->description();
  }
  end(Failure::from_peer("rank " + std::to_string(rank()) + " of " + name() +
                         " left the group with " + pending + " still under way after " +
                         std::to_string(options().leave_timeout.count()) + " ms"));
}

// --- the caller's side
// -----------------------------------------------------------------------------

Work HostBackend::submit(std::span<Operation> operations) {
  if (StepRecording* const recording = StepRecording::on(cpu)) [[unlikely]]
    return capture(operations, *recording);
  refuse_in_captured_step("a collective of the host", "call it before or after the step");
  auto work = make_intrusive<HostWork>(operations);
  bool wakes = false;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) refuse_after_leaving();
    work->take_numbers(sequence_);
    if (failure_) {
      work->finish(failure_);
      return Work(work);
    }
    if (size() > 1) wakes = enqueue(work);
  }
  if (wakes) wake_.notify_one();
  if (size() == 1) work->finish(carry_out(*work));
  return Work(work);
}

// The membership comes before the executor: no member can leave before all have theirs.
std::unique_ptr<CommunicatorBackend> HostBackend::split(const SplitPlan& plan) {
  GroupMembership membership = membership_.part(plan.name, plan.members);
  auto executor = executor_->split(plan);
  if (!executor) return nullptr;
  return std::make_unique<HostBackend>(std::move(executor), plan.name, options(),
                                       std::move(membership));
}

void HostBackend::declare(std::uint64_t subject, const std::string& end) {
  membership_.declare(name(), rank(), size(), subject, end);
}

void HostBackend::check() {
  std::optional<Failure> failure;
  {
    const std::lock_guard lock(mutex_);
    failure = failure_;
  }
  if (failure) failure->raise();
  try {
    executor_->check();
  } catch (const PeerFailure& error) {
    fail(Failure::from_peer(error.what()));
    throw;
  }
}

void HostBackend::abort(const std::string& reason) noexcept {
  const Failure failure = Failure::from_peer(reason);
  failure.note_told();
  end(failure);
}

void HostBackend::end(const Failure& failure) {
  fail(failure);
  if (has_left_) return;  // what carried the group may be gone with the session
  executor_->abort(failure.message());
}

std::string HostBackend::describe_progress() const {
  const std::lock_guard lock(mutex_);
  lockstep::detail::TextStream out;
  out << "rank " << rank() << " of " << name() << ": ";
  std::chrono::duration<double> so_far{};
  if (running_) {
    if (running_->started() != Clock::time_point{}) so_far = Clock::now() - running_->started();
    out << "in " << running_->full_description() << " for " << std::setprecision(3)
        << so_far.count() << " s, " << queue_.size() << " more queued";
  } else if (ended_.last()) {
    out << "idle after " << ended_.last()->full_description();
  } else {
    out << "idle, no operation so far";
  }
  out << "; " << ended_.share(so_far.count());
  if (failure_) out << "; failed: " << failure_->summary();
  out << ended_.lines(running_ ? 0 : 1);
  return out.str();
}

void HostBackend::fail(const Failure& failure) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = failure;
}

// --- members that leave
// -----------------------------------------------------------------------------

void HostBackend::member_left(const Departure& departure) {
  if (departure.rank < 0 || departure.rank >= size()) return;
  std::string reason;
  {
    const std::lock_guard lock(mutex_);
    departures_.add(departure);
    inquiry_.note_left(departure.rank);
    member_left_.notify_all();
    if (!running_) return;
    const Operations operations = running_->operations();
    limit_waits_for_the_gone(operations);
    const Departure* const gone = departures_.before(last_collective(operations));
    if (!gone) return;
    reason = context(operations) + ": " + comm::describe(*gone, name());
  }
  end(Failure::from_peer(reason));
}

// Of messages between two ranks a departure does not say which were sent before; what was is on its
// way. The mutex is held.
void HostBackend::limit_waits_for_the_gone(Operations operations) {
  constexpr auto grace_period = std::chrono::milliseconds(500);
  for (const int rank : partners_of(operations))
    if (departures_.among({&rank, 1})) deadline_.bring_forward(rank, Clock::now() + grace_period);
}

// The news of a departure may come after the end of the connection.
Failure HostBackend::failure_of_gone_peer(Operations operations, const PeerGone& missed) {
  constexpr auto departure_timeout = std::chrono::milliseconds(500);
  std::unique_lock lock(mutex_);
  const Departure* gone = nullptr;
  const auto is_explained = [&] {
    gone = departures_.before(last_collective(operations));
    if (!gone && !partners_of(operations).empty()) gone = departures_.among({&missed.peer, 1});
    return gone != nullptr;
  };
  if (member_left_.wait_for(lock, departure_timeout, is_explained))
    return Failure::from_peer(context(operations) + ": " + comm::describe(*gone, name()));
  return Failure::from_peer(context(operations) + ": rank " + std::to_string(missed.peer) + " " +
                            missed.how);
}

std::string HostBackend::context(Operations operations) const {
  return "rank " + std::to_string(rank()) + " of " + name() + ", in " +
         describe_in_full(operations);
}

}  // namespace lockstep::comm::host
