#include "comm/hier/background_exchange.hpp"

#include <chrono>
#include <utility>

#include <sys/prctl.h>

namespace lockstep::comm::hier {

BackgroundExchange::~BackgroundExchange() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void BackgroundExchange::start(std::vector<Operation> operations, const host::Deadline& deadline) {
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;  // whoever waits next hears of it
    jobs_.push_back({std::move(operations), &deadline});
    ++under_way_;
  }
  changed_.notify_all();
}

void BackgroundExchange::wait(std::uint64_t left, FunctionRef<void()> check) {
  // So often whoever waits hears of an abort by other ways.
  constexpr auto longest_wait = std::chrono::milliseconds(10);
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, longest_wait, [&] { return failure_ || under_way_ <= left; })) {
    lock.unlock();
    check();
    lock.lock();
  }
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void BackgroundExchange::check() {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void BackgroundExchange::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return under_way_ == 0; });
  failure_ = nullptr;
}

void BackgroundExchange::work() {
  prctl(PR_SET_NAME, "lockstep-hosts");
  prctl(PR_SET_TIMERSLACK, 1000UL);  // as HostBackend's thread
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return !jobs_.empty() || stopping_; });
    if (jobs_.empty()) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    std::exception_ptr failure;
    lock.unlock();
    try {
      executor_->run(job.operations, *job.deadline);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    --under_way_;
    if (failure) {
      failure_ = std::move(failure);
      under_way_ -= std::exchange(jobs_, {}).size();
    }
    changed_.notify_all();
  }
}

}  // namespace lockstep::comm::hier
