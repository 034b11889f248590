#include "nccl/communicator.hpp"

#include <chrono>

#include "nccl/connection.hpp"
#include "nccl/failure.hpp"

namespace simgpu::nccl {

Communicator::~Communicator() {
  if (work_.joinable()) work_.join();
}

std::string Communicator::describe() const {
  std::string text = "communicator ";
  if (!options_.name.empty()) text += "'" + options_.name + "' ";
  return text + "of " + std::to_string(options_.ranks) + " ranks";
}

// --- life
// ----------------------------------------------------------------------------------------------------

void Communicator::start(std::function<void()> work) {
  const std::lock_guard lock(work_mutex_);
  ++working_;
  work_ = std::thread([this, work = std::move(work), earlier = std::move(work_)]() mutable {
    if (earlier.joinable()) earlier.join();
    try {
      work();
    } catch (const Failure& failure) {
      fail(failure.status(), failure.what());
    } catch (const std::exception& error) {
      fail(ncclInternalError, error.what());
    }
    working_.fetch_sub(1, std::memory_order_release);
  });
}

ncclResult_t Communicator::wait() {
  const std::lock_guard lock(work_mutex_);
  if (work_.joinable()) work_.join();
  return error_;
}

void Communicator::set_exchange(std::unique_ptr<CallExchange> exchange) {
  options_.ranks = exchange->size();
  options_.rank = exchange->rank();
  counters_ = Counters(exchange->size());
  connected_.resize(static_cast<std::size_t>(exchange->size()));
  exchange_ = std::move(exchange);
}

ncclResult_t Communicator::state() {
  if (working_.load(std::memory_order_acquire) > 0) return ncclInProgress;
  look_for_lost_peers();
  if (has_failed()) return error_;
  return answered_.exchange(true) ? ncclSuccess : ncclInProgress;
}

void Communicator::look_for_lost_peers() {
  if (has_failed() || finalized_ || !exchange_) return;
  const int lost = exchange_->lost_rank();
  if (lost >= 0)
    fail(ncclRemoteError, describe() + ": the process of rank " + std::to_string(lost) +
                              " ended or its connection broke");
}

ncclResult_t Communicator::answer() {
  if (options_.is_blocking) return ncclSuccess;
  answered_ = false;
  return ncclInProgress;
}

void Communicator::require_ready() {
  if (options_.is_blocking) wait();
  if (has_failed()) throw Failure(error_, describe() + " failed before: " + last_error());
  if (working_.load(std::memory_order_acquire) > 0 || !answered_)
    throw Failure(ncclInvalidArgument,
                  "Attempt to use communicator before the previous operation returned "
                  "ncclSuccess: ask ncclCommGetAsyncError of the " +
                      describe() + " until it is not in progress");
}

void Communicator::require_open() {
  require_ready();
  if (finalized_) throw Failure(ncclInvalidUsage, describe() + " was finalized");
}

void Communicator::refuse_call(ncclResult_t status) {
  if (!options_.is_blocking) fail(status, last_error());
}

void Communicator::fail(ncclResult_t status, const std::string& message) {
  ncclResult_t none = ncclSuccess;
  if (error_.compare_exchange_strong(none, status)) remember(status, message);
}

void Communicator::abort() {
  aborted_.store(true, std::memory_order_release);
  registrations_.end(describe(), false);
}

// In all versions, also after an abort.
void Communicator::wait_for_graphs() const {
  while (held_by_graphs_ != 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
}

// As NCCL, which keeps polling until the graphs with its collectives are gone.
void Communicator::finalize() {
  const auto is_idle = [this] {
    return finished_.load(std::memory_order_acquire) >= launched_ && held_by_graphs_ == 0;
  };
  while (!is_idle() && !is_aborted() && !has_failed()) {
    look_for_lost_peers();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  finalized_ = true;
}

void Communicator::leave() {
  wait();
  if (exchange_) exchange_->announce(is_aborted() ? Presence::aborted : Presence::left);
}

// --- launches
// ------------------------------------------------------------------------------------------------

bool Communicator::begin_launch(const std::uint64_t* ticket) {
  if (running_ || !exchange_ || has_failed()) return false;
  if (ticket && *ticket != finished_.load()) return false;
  running_ = true;
  return true;
}

void Communicator::end_launch(bool had_ticket) {
  running_ = false;
  if (had_ticket) finished_.fetch_add(1, std::memory_order_release);
}

void Communicator::meet_for_capture() {
  if (size() == 1 || options_.is_blocking) return;
  const std::uint64_t launches = exchange_->announce_capture();
  start([this, launches] {
    wait_until([&] { return exchange_->is_captured_by_neighbours(launches); });
  });
}

void Communicator::connect(std::span<const Arguments> calls) {
  const auto half = static_cast<std::size_t>((rank() + size() / 2) % size());
  const bool has_met_half = connected_[half] != 0;
  Directions needed = directions_of(calls, rank(), size());
  bool is_needed = false;
  for (std::size_t peer = 0; peer < needed.size(); ++peer) {
    needed[peer] &= ~connected_[peer];
    connected_[peer] |= needed[peer];
    is_needed = is_needed || needed[peer] != 0;
  }
  if (!is_needed) return;
  ++setups_;
  start([this, needed = std::move(needed), has_met_half] {
    if (nccl::connect(*this, needed, has_met_half))
      setups_done_.fetch_add(1, std::memory_order_release);
  });
}

bool Communicator::wait_until(const std::function<bool()>& condition) {
  while (!condition()) {
    if (is_aborted() || has_failed()) return false;
    look_for_lost_peers();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

// --- reductions
// ----------------------------------------------------------------------------------------------

ncclRedOp_t Communicator::add_scaled_sum(const ScaledSum& sum) {
  const std::lock_guard lock(sums_mutex_);
  std::size_t place = 0;
  while (place < sums_.size() && sums_[place].exists) ++place;
  if (place == sums_.size()) sums_.emplace_back();
  sums_[place] = sum;
  sums_[place].exists = true;
  return static_cast<ncclRedOp_t>(ncclNumOps + static_cast<int>(place));
}

ScaledSum Communicator::scaled_sum(ncclRedOp_t op) const {
  const std::lock_guard lock(sums_mutex_);
  const auto place = static_cast<std::size_t>(op) - ncclNumOps;
  if (op < ncclNumOps || place >= sums_.size() || !sums_[place].exists)
    throw Failure(ncclInvalidArgument,
                  "there is no reduction " + std::to_string(op) + " of this communicator");
  return sums_[place];
}

void Communicator::remove_scaled_sum(ncclRedOp_t op) {
  scaled_sum(op);
  const std::lock_guard lock(sums_mutex_);
  sums_[static_cast<std::size_t>(op) - ncclNumOps].exists = false;
}

}  // namespace simgpu::nccl
