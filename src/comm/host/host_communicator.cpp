#include "comm/host/host_communicator.hpp"

#include <algorithm>
#include <exception>
#include <sstream>
#include <utility>

#include <sched.h>
#include <sys/prctl.h>

#include "comm/split.hpp"
#include "lockstep/comm/host_values.hpp"

namespace lockstep::comm::host {

HostCommunicator::HostCommunicator(std::unique_ptr<Transport> transport, std::string name,
                                   const CommunicatorOptions& options, GroupMembership membership)
    : OperationCommunicator(transport->rank(), transport->size(), std::move(name), options),
      transport_(std::move(transport)),
      collectives_(*transport_, this->name(), options.check_signatures),
      membership_(std::move(membership)) {
  if (size() == 1) return;
  thread_ = std::thread([this] { progress(); });
  membership_.listen([this](const Departure& departure) { member_left(departure); });
}

HostCommunicator::~HostCommunicator() {
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
void HostCommunicator::drain() {
  std::string pending;
  {
    std::unique_lock lock(mutex_);
    const auto is_drained = [&] { return queue_.empty() && !running_; };
    const auto limit = std::chrono::system_clock::now() + options().leave_timeout;
    if (drained_.wait_until(lock, limit, is_drained)) return;
    pending = Signature((running_ ? running_ : queue_.front())->operation()).describe();
  }
  end(Failure::from_peer("rank " + std::to_string(rank()) + " of " + name() +
                         " left the group with " + pending + " still under way after " +
                         std::to_string(options().leave_timeout.count()) + " ms"));
}

// --- the caller's side
// -----------------------------------------------------------------------------

Work HostCommunicator::submit(Operation operation) {
  const bool numbered = !operation.is_point_to_point();
  auto work = make_intrusive<HostWork>(std::move(operation));
  {
    const std::lock_guard lock(mutex_);
    work->set_sequence(numbered ? sequence_++ : sequence_);
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

CommunicatorPtr HostCommunicator::split(int color, int key) {
  const std::string part = next_part_name(color);
  GroupMembership membership = membership_.part(part);
  const SplitPlan plan = agree_on_split(*this, color, key);
  auto transport = transport_->split(color, plan.members, [&](std::string_view bytes) {
    return all_gather_bytes(*this, bytes, "split");
  });
  if (!transport) return nullptr;
  return make_intrusive<HostCommunicator>(std::move(transport), part, options(),
                                          std::move(membership));
}

void HostCommunicator::abort(const std::string& reason) noexcept {
  const Failure failure = Failure::from_peer(reason);
  failure.note_told();
  end(failure);
}

void HostCommunicator::end(const Failure& failure) {
  fail(failure);
  transport_->abort(failure.message());
}

std::string HostCommunicator::describe_progress() const {
  const std::lock_guard lock(mutex_);
  std::ostringstream out;
  out << "rank " << rank() << " of " << name() << ": ";
  if (running_)
    out << "in " << Signature(running_->operation()).describe() << ", " << queue_.size()
        << " more queued";
  else if (last_)
    out << "idle after " << Signature(last_->operation()).describe();
  else
    out << "idle, no operation so far";
  if (failure_) out << "; failed: " << failure_->message();
  return out.str();
}

// --- the progress thread
// ---------------------------------------------------------------------------

void HostCommunicator::progress() {
  prctl(PR_SET_NAME, "lockstep-comm");
  // Waiting for a late peer sleeps in short naps; the default slack would triple them.
  prctl(PR_SET_TIMERSLACK, 1000UL);
  while (const WorkPtr work = next()) execute(*work);
}

HostCommunicator::WorkPtr HostCommunicator::next() {
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

void HostCommunicator::execute(HostWork& work) {
  work.start();
  {
    const std::lock_guard lock(mutex_);
    if (!failure_ && can_never_end(work.operation()))
      failure_ = Failure::from_peer(describe_departure(work.operation()));
    if (failure_) return work.finish(failure_);
  }
  work.finish(run(work.operation()));
}

std::optional<Failure> HostCommunicator::run(const Operation& operation) {
  Failure failure;
  try {
    collectives_.run(operation);
    return std::nullopt;
  } catch (const TransferTimeout& timeout) {
    std::ostringstream text;
    text << context(operation) << " timed out after " << operation.timeout.count()
         << " ms, waiting for rank";
    for (const int peer : timeout.missing) text << ' ' << peer;
    failure = Failure::timeout(text.str());
  } catch (const PeerGone& gone) {
    failure = failure_of_gone_peer(operation, gone.peer);
  } catch (...) {
    failure = Failure::from_current();
    failure.add_context(context(operation));
  }
  fail(failure);
  if (!failure.is_from_peer() && !is_seen_by_all(failure, operation))
    transport_->abort(failure.message());
  if (!transport_->settle()) collectives_.abandon_buffers();
  const std::lock_guard lock(mutex_);
  return failure_;
}

// Where all ranks compare all signatures, each finds a mismatch by itself, and in the same words. A
// pair's is known to one of the two, and to nobody else who waits for them.
bool HostCommunicator::is_seen_by_all(const Failure& failure, const Operation& operation) const {
  return failure.is_mismatch() && options().check_signatures && !operation.is_point_to_point() &&
         collectives_.all_are_collective();
}

void HostCommunicator::fail(const Failure& failure) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = failure;
}

// --- members that leave
// -----------------------------------------------------------------------------

void HostCommunicator::member_left(const Departure& departure) {
  std::string reason;
  {
    const std::lock_guard lock(mutex_);
    if (!departure_ || departure.collectives < departure_->collectives) departure_ = departure;
    member_left_.notify_all();
    if (!running_ || !can_never_end(running_->operation())) return;
    reason = describe_departure(running_->operation());
  }
  end(Failure::from_peer(reason));
}

// The news of a departure may come after the end of the connection.
Failure HostCommunicator::failure_of_gone_peer(const Operation& operation, int peer) {
  constexpr auto news_patience = std::chrono::milliseconds(500);
  std::unique_lock lock(mutex_);
  const auto limit = std::chrono::system_clock::now() + news_patience;
  if (member_left_.wait_until(lock, limit, [&] { return can_never_end(operation); }))
    return Failure::from_peer(describe_departure(operation));
  return Failure::from_peer(context(operation) + ": rank " + std::to_string(peer) +
                            " closed its connection");
}

// What comes before the departure was joined by all; it ends, or fails by itself.
bool HostCommunicator::can_never_end(const Operation& operation) const {
  return departure_ && !operation.is_point_to_point() &&
         operation.sequence >= departure_->collectives;
}

std::string HostCommunicator::describe_departure(const Operation& operation) const {
  return context(operation) + ": rank " + std::to_string(departure_->rank) + " left " + name() +
         " after " + std::to_string(departure_->collectives) +
         " collectives; all ranks must make the same calls";
}

std::string HostCommunicator::context(const Operation& operation) const {
  return "rank " + std::to_string(rank()) + " of " + name() + ", in " +
         Signature(operation).describe();
}

}  // namespace lockstep::comm::host
