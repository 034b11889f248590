#include "comm/host/host_backend.hpp"

#include <algorithm>
#include <exception>
#include <sstream>
#include <utility>

#include <sched.h>
#include <sys/prctl.h>

#include "comm/signature.hpp"

namespace lockstep::comm::host {

HostBackend::HostBackend(std::unique_ptr<Transport> transport, std::string name,
                         const CommunicatorOptions& options, GroupMembership membership)
    : CommunicatorBackend(transport->rank(), transport->size(), std::move(name), options),
      transport_(std::move(transport)),
      collectives_(*transport_, this->name(), options.check_signatures),
      membership_(std::move(membership)) {
  if (size() == 1) return;
  thread_ = std::thread([this] { progress(); });
  membership_.listen([this](const Departure& departure) { member_left(departure); });
}

HostBackend::~HostBackend() {
  if (!thread_.joinable()) return;
  // While an exception unwinds, the peers may never come to what is still queued.
  if (std::uncaught_exceptions() > 0) abort("rank " + std::to_string(rank()) + " is unwinding");
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    has_work_.store(true, std::memory_order_release);
  }
  wake_.notify_all();
  drain();
  thread_.join();
  if (!failure_) membership_.leave({rank(), sequence_});  // of a failure the others hear by itself
}

// A late peer needs this rank's part of what nobody here waits for; one that never comes must not
// hold up the end of the program.
void HostBackend::drain() {
  std::string pending;
  {
    std::unique_lock lock(mutex_);
    const auto is_drained = [&] { return queue_.empty() && !running_; };
    const auto limit = std::chrono::system_clock::now() + options().leave_timeout;
    if (drained_.wait_until(lock, limit, is_drained)) return;
    pending = describe((running_ ? running_ : queue_.front())->operations());
  }
  end(Failure::from_peer("rank " + std::to_string(rank()) + " of " + name() +
                         " left the group with " + pending + " still under way after " +
                         std::to_string(options().leave_timeout.count()) + " ms"));
}

// --- the caller's side
// -----------------------------------------------------------------------------

Work HostBackend::submit(std::span<Operation> operations) {
  auto work = make_intrusive<HostWork>(operations);
  {
    const std::lock_guard lock(mutex_);
    work->take_numbers(sequence_);
    if (failure_) {
      work->finish(failure_);
      return Work(work);
    }
    if (size() > 1) {
      queue_.push_back(work);
      has_work_.store(true, std::memory_order_release);
    }
  }
  if (size() > 1)
    wake_.notify_one();
  else
    execute(*work);
  return Work(work);
}

// The membership comes before the transport: no member can leave before all have a transport.
std::unique_ptr<CommunicatorBackend> HostBackend::split(const SplitPlan& plan) {
  GroupMembership membership = membership_.part(plan.name);
  auto transport = transport_->split(plan.color, plan.members, plan.all_gather);
  if (!transport) return nullptr;
  return std::make_unique<HostBackend>(std::move(transport), plan.name, options(),
                                       std::move(membership));
}

void HostBackend::abort(const std::string& reason) noexcept {
  const Failure failure = Failure::from_peer(reason);
  failure.note_told();
  end(failure);
}

void HostBackend::end(const Failure& failure) {
  fail(failure);
  transport_->abort(failure.message());
}

std::string HostBackend::describe_progress() const {
  const std::lock_guard lock(mutex_);
  std::ostringstream out;
  out << "rank " << rank() << " of " << name() << ": ";
  if (running_)
    out << "in " << describe(running_->operations()) << ", " << queue_.size() << " more queued";
  else if (last_)
    out << "idle after " << describe(last_->operations());
  else
    out << "idle, no operation so far";
  if (failure_) out << "; failed: " << failure_->message();
  return out.str();
}

// --- the progress thread
// ---------------------------------------------------------------------------

void HostBackend::progress() {
  prctl(PR_SET_NAME, "lockstep-comm");
  // Waiting for a late peer sleeps in short naps; the default slack would triple them.
  prctl(PR_SET_TIMERSLACK, 1000UL);
  while (const WorkPtr work = next()) execute(*work);
}

HostBackend::WorkPtr HostBackend::next() {
  // The next collective of a small step is often microseconds away; a sleep costs more than that.
  constexpr int yields_before_sleep = 20;
  for (int i = 0; i < yields_before_sleep && !has_work_.load(std::memory_order_acquire); ++i)
    sched_yield();
  std::unique_lock lock(mutex_);
  if (running_) last_ = std::move(running_);
  if (stopping_ && queue_.empty()) drained_.notify_all();
  wake_.wait(lock, [&] { return !queue_.empty() || stopping_; });
  if (queue_.empty()) return nullptr;
  running_ = std::move(queue_.front());
  queue_.pop_front();
  has_work_.store(!queue_.empty() || stopping_, std::memory_order_release);
  return running_;
}

void HostBackend::execute(HostWork& work) {
  work.start();
  {
    const std::lock_guard lock(mutex_);
    if (!failure_ && can_never_end(work.operations()))
      failure_ = Failure::from_peer(describe_departure(work.operations()));
    if (failure_) return work.finish(failure_);
  }
  work.finish(run(work.operations()));
}

std::optional<Failure> HostBackend::run(Operations operations) {
  Failure failure;
  try {
    collectives_.run(operations);
    return std::nullopt;
  } catch (const TransferTimeout& timeout) {
    std::ostringstream text;
    text << context(operations) << " timed out after " << timeout_of(operations).count()
         << " ms, waiting for rank";
    for (const int peer : timeout.missing) text << ' ' << peer;
    failure = Failure::timeout(text.str());
  } catch (const PeerGone& gone) {
    failure = failure_of_gone_peer(operations, gone.peer);
  } catch (...) {
    failure = Failure::from_current();
    failure.add_context(context(operations));
  }
  fail(failure);
  if (!failure.is_from_peer() && !is_seen_by_all(failure, operations))
    transport_->abort(failure.message());
  if (!transport_->settle()) collectives_.abandon_buffers();
  const std::lock_guard lock(mutex_);
  return failure_;
}

// Where all ranks compare all signatures, each finds a mismatch by itself, and in the same words. A
// pair's is known to one of the two, and to nobody else who waits for them.
bool HostBackend::is_seen_by_all(const Failure& failure, Operations operations) const {
  const bool has_pairs = std::ranges::any_of(
      operations, [](const Operation& operation) { return operation.is_point_to_point(); });
  return failure.is_mismatch() && options().check_signatures && !has_pairs &&
         collectives_.all_are_collective();
}

void HostBackend::fail(const Failure& failure) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = failure;
}

// --- members that leave
// -----------------------------------------------------------------------------

void HostBackend::member_left(const Departure& departure) {
  std::string reason;
  {
    const std::lock_guard lock(mutex_);
    departures_.add(departure);
    member_left_.notify_all();
    if (!running_ || !can_never_end(running_->operations())) return;
    reason = describe_departure(running_->operations());
  }
  end(Failure::from_peer(reason));
}

// The news of a departure may come after the end of the connection.
Failure HostBackend::failure_of_gone_peer(Operations operations, int peer) {
  constexpr auto news_patience = std::chrono::milliseconds(500);
  std::unique_lock lock(mutex_);
  const auto limit = std::chrono::system_clock::now() + news_patience;
  if (member_left_.wait_until(lock, limit, [&] { return can_never_end(operations); }))
    return Failure::from_peer(describe_departure(operations));
  return Failure::from_peer(context(operations) + ": rank " + std::to_string(peer) +
                            " closed its connection");
}

bool HostBackend::can_never_end(Operations operations) const {
  return departures_.rule_out(last_collective(operations));
}

std::string HostBackend::describe_departure(Operations operations) const {
  return context(operations) + ": " + departures_.describe(name());
}

std::string HostBackend::context(Operations operations) const {
  return "rank " + std::to_string(rank()) + " of " + name() + ", in " + describe(operations);
}

}  // namespace lockstep::comm::host
