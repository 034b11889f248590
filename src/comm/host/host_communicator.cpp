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
                                   const CommunicatorOptions& options)
    : OperationCommunicator(transport->rank(), transport->size(), std::move(name), options),
      transport_(std::move(transport)),
      collectives_(*transport_, this->name(), options.check_signatures) {
  if (size() > 1) thread_ = std::thread([this] { progress(); });
}

HostCommunicator::~HostCommunicator() {
  // While an exception unwinds, the peers may never come to what is still queued.
  if (std::uncaught_exceptions() > 0) abort("rank " + std::to_string(rank()) + " is unwinding");
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    has_work_.store(true, std::memory_order_release);
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
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
  const SplitPlan plan = agree_on_split(*this, color, key);
  const std::string part = next_part_name(color);
  auto transport = transport_->split(color, plan.members, [&](std::string_view bytes) {
    return all_gather_bytes(*this, bytes, "split");
  });
  if (!transport) return nullptr;
  return make_intrusive<HostCommunicator>(std::move(transport), part, options());
}

void HostCommunicator::abort(const std::string& reason) noexcept {
  fail(Failure::from_peer(reason));
  transport_->abort(reason);
}

std::string HostCommunicator::describe_progress() const {
  const std::lock_guard lock(mutex_);
  std::ostringstream out;
  out << "rank " << rank() << " of " << name() << ": ";
  if (running_)
    out << "in " << Signature(running_->operation()).describe() << ", " << queue_.size()
        << " more queued";
  else
    out << "idle after " << sequence_ << " collectives";
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
  running_.reset();
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
    if (failure_) return work.finish(failure_);
  }
  work.finish(failure_of(work.operation()));
}

std::optional<Failure> HostCommunicator::failure_of(const Operation& operation) {
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
  } catch (...) {
    failure = Failure::from_current();
    failure.add_context(context(operation));
  }
  fail(failure);
  // Every rank of a mismatch sees it by itself; all other failures must be told.
  if (!failure.is_from_peer() && !failure.is_mismatch()) transport_->abort(failure.message());
  if (!transport_->settle()) collectives_.abandon_buffers();
  const std::lock_guard lock(mutex_);
  return failure_;
}

void HostCommunicator::fail(const Failure& failure) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = failure;
}

std::string HostCommunicator::context(const Operation& operation) const {
  return "rank " + std::to_string(rank()) + " of " + name() + ", in " +
         Signature(operation).describe();
}

}  // namespace lockstep::comm::host
