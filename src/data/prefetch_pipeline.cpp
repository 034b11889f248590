#include "lockstep/data/detail/prefetch_pipeline.hpp"

#include <algorithm>
#include <utility>

#include "lockstep/core/error.hpp"

namespace lockstep::data {

PrefetchPipeline::PrefetchPipeline(int workers, int slots, Produce produce)
    : produce_(std::move(produce)) {
  LOCKSTEP_CHECK(workers > 0 && slots > 0, InvalidArgument, workers, " workers with ", slots,
                 " slots cannot work ahead; at least 1 of each is needed");
  slots_.resize(static_cast<std::size_t>(slots));
  try {
    for (int i = 0; i < workers; ++i) threads_.emplace_back([this] { work(); });
  } catch (...) {
    join();
    throw;
  }
}

PrefetchPipeline::~PrefetchPipeline() { join(); }

void PrefetchPipeline::join() noexcept {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  work_there_.notify_all();
  for (auto& thread : threads_) thread.join();
}

void PrefetchPipeline::stop_locked(std::unique_lock<std::mutex>& lock) {
  end_ = claimed_;
  job_done_.wait(lock, [this] { return running_ == 0; });
  std::ranges::fill(slots_, Slot{});
}

void PrefetchPipeline::stop() {
  std::unique_lock lock(mutex_);
  stop_locked(lock);
}

void PrefetchPipeline::start(std::int64_t first, std::int64_t end) {
  {
    std::unique_lock lock(mutex_);
    stop_locked(lock);
    first_ = taken_ = claimed_ = first;
    end_ = end;
  }
  work_there_.notify_all();
}

// The slot of the job taken last stays the consumer's until the next `take`.
bool PrefetchPipeline::may_claim() const {
  const std::int64_t held = std::max(taken_ - 1, first_);
  return claimed_ < end_ && claimed_ - held < static_cast<std::int64_t>(slots_.size());
}

void PrefetchPipeline::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    work_there_.wait(lock, [this] { return closing_ || may_claim(); });
    if (closing_) return;
    const std::int64_t job = claimed_++;
    ++running_;
    lock.unlock();
    std::exception_ptr error = run(job);
    lock.lock();
    slots_[slot_of(job)] = {true, std::move(error)};
    --running_;
    job_done_.notify_all();
  }
}

std::exception_ptr PrefetchPipeline::run(std::int64_t job) noexcept {
  try {
    produce_(job, slot_of(job));
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

std::size_t PrefetchPipeline::take() {
  std::unique_lock lock(mutex_);
  LOCKSTEP_CHECK(taken_ < end_, InvalidArgument, "all jobs up to ", end_, " have been taken");
  const std::int64_t job = taken_++;
  if (job > first_) {
    slots_[slot_of(job - 1)] = {};
    work_there_.notify_one();
  }
  Slot& slot = slots_[slot_of(job)];
  job_done_.wait(lock, [&] { return slot.ready; });
  if (slot.error) std::rethrow_exception(std::exchange(slot.error, nullptr));
  return slot_of(job);
}

}  // namespace lockstep::data
