#include "comm/host/host_communicator.hpp"

#include <algorithm>
#include <exception>
#include <sstream>
#include <utility>

#include <sched.h>
#include <sys/prctl.h>

#include "comm/arguments.hpp"
#include "comm/split.hpp"
#include "lockstep/comm/host_values.hpp"

namespace lockstep::comm::host {

HostCommunicator::HostCommunicator(std::unique_ptr<Transport> transport, std::string name,
                                   const CommunicatorOptions& options)
    : transport_(std::move(transport)),
      rank_(transport_->rank()),
      size_(transport_->size()),
      name_(std::move(name)),
      options_(options),
      collectives_(*transport_, name_, options.check_signatures) {
  if (size_ > 1) thread_ = std::thread([this] { progress(); });
}

HostCommunicator::~HostCommunicator() {
  // While an exception unwinds, the peers may never come to what is still queued.
  if (std::uncaught_exceptions() > 0) abort("rank " + std::to_string(rank_) + " is unwinding");
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

Work HostCommunicator::submit(Operation operation, const CollectiveOptions& options) {
  operation.label = options.label;
  operation.timeout = options.timeout.value_or(options_.timeout);
  const bool numbered = !operation.is_point_to_point();
  auto work = make_intrusive<HostWork>(std::move(operation));
  {
    const std::lock_guard lock(mutex_);
    work->set_sequence(numbered ? sequence_++ : sequence_);
    if (failure_) {
      work->finish(failure_);
      return Work(work);
    }
    if (size_ > 1) {
      queue_.push_back(work);
      has_work_.store(true, std::memory_order_release);
    }
  }
  if (size_ > 1)
    wake_.notify_one();
  else
    execute(*work);
  return Work(work);
}

Work HostCommunicator::all_reduce(Buffer buffer, Reduction reduction,
                                  const CollectiveOptions& options) {
  const CallSite site{"all_reduce", size_};
  check_buffer(site, buffer);
  check_reduction(site, buffer.dtype, reduction);
  auto* data = static_cast<std::byte*>(buffer.data);
  return submit({.kind = OperationKind::all_reduce,
                 .dtype = buffer.dtype,
                 .reduction = reduction,
                 .input = data,
                 .output = data,
                 .count = buffer.count},
                options);
}

Work HostCommunicator::reduce_scatter(ConstBuffer input, Buffer output, Reduction reduction,
                                      std::span<const std::int64_t> counts,
                                      const CollectiveOptions& options) {
  const CallSite site{"reduce_scatter", size_};
  check_reduction(site, input.dtype, reduction);
  return submit({.kind = OperationKind::reduce_scatter,
                 .dtype = input.dtype,
                 .reduction = reduction,
                 .input = static_cast<const std::byte*>(input.data),
                 .output = static_cast<std::byte*>(output.data),
                 .count = input.count,
                 .counts = check_parts(site, output, rank_, input, counts)},
                options);
}

Work HostCommunicator::all_gather(ConstBuffer input, Buffer output,
                                  std::span<const std::int64_t> counts,
                                  const CollectiveOptions& options) {
  const CallSite site{"all_gather", size_};
  return submit({.kind = OperationKind::all_gather,
                 .dtype = input.dtype,
                 .input = static_cast<const std::byte*>(input.data),
                 .output = static_cast<std::byte*>(output.data),
                 .count = output.count,
                 .counts = check_parts(site, input, rank_, output, counts)},
                options);
}

Work HostCommunicator::broadcast(Buffer buffer, int root, const CollectiveOptions& options) {
  const CallSite site{"broadcast", size_};
  check_buffer(site, buffer);
  check_rank(site, "root", root);
  auto* data = static_cast<std::byte*>(buffer.data);
  return submit({.kind = OperationKind::broadcast,
                 .dtype = buffer.dtype,
                 .input = data,
                 .output = data,
                 .count = buffer.count,
                 .peer = root},
                options);
}

Work HostCommunicator::all_to_all(ConstBuffer input, Buffer output,
                                  const CollectiveOptions& options) {
  check_all_to_all({"all_to_all", size_}, input, output);
  return submit({.kind = OperationKind::all_to_all,
                 .dtype = input.dtype,
                 .input = static_cast<const std::byte*>(input.data),
                 .output = static_cast<std::byte*>(output.data),
                 .count = input.count},
                options);
}

Work HostCommunicator::send(ConstBuffer buffer, int to, const CollectiveOptions& options) {
  const CallSite site{"send", size_};
  check_buffer(site, buffer);
  check_rank(site, "destination", to);
  LOCKSTEP_CHECK(to != rank_, InvalidArgument, "send: rank ", to, " cannot send to itself");
  return submit({.kind = OperationKind::send,
                 .dtype = buffer.dtype,
                 .input = static_cast<const std::byte*>(buffer.data),
                 .count = buffer.count,
                 .peer = to},
                options);
}

Work HostCommunicator::receive(Buffer buffer, int from, const CollectiveOptions& options) {
  const CallSite site{"receive", size_};
  check_buffer(site, buffer);
  check_rank(site, "source", from);
  LOCKSTEP_CHECK(from != rank_, InvalidArgument, "receive: rank ", from,
                 " cannot receive from itself");
  return submit({.kind = OperationKind::receive,
                 .dtype = buffer.dtype,
                 .output = static_cast<std::byte*>(buffer.data),
                 .count = buffer.count,
                 .peer = from},
                options);
}

Work HostCommunicator::barrier(const CollectiveOptions& options) {
  return submit({.kind = OperationKind::barrier}, options);
}

CommunicatorPtr HostCommunicator::split(int color, int key) {
  const SplitPlan plan = agree_on_split(*this, color, key);
  const std::string name = name_ + "/" + std::to_string(splits_++) + "." + std::to_string(color);
  auto transport = transport_->split(color, plan.members, [&](std::string_view bytes) {
    return all_gather_bytes(*this, bytes, "split");
  });
  if (!transport) return nullptr;
  return make_intrusive<HostCommunicator>(std::move(transport), name, options_);
}

void HostCommunicator::abort(const std::string& reason) noexcept {
  fail(Failure::from_peer(reason));
  transport_->abort(reason);
}

std::string HostCommunicator::describe_progress() const {
  const std::lock_guard lock(mutex_);
  std::ostringstream out;
  out << "rank " << rank_ << " of " << name_ << ": ";
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
  const std::lock_guard lock(mutex_);
  return failure_;
}

void HostCommunicator::fail(const Failure& failure) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = failure;
}

std::string HostCommunicator::context(const Operation& operation) const {
  return "rank " + std::to_string(rank_) + " of " + name_ + ", in " +
         Signature(operation).describe();
}

}  // namespace lockstep::comm::host
