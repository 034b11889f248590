#include "checkpoint/throttle.hpp"

#include <algorithm>
#include <ctime>

namespace lockstep::checkpoint {
namespace {

constexpr double share = 0.03;  // of a processor

}  // namespace

double processor_seconds() noexcept {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}

void Throttle::begin(double longest) {
  const std::lock_guard lock(mutex_);
  hurries_ = false;
  start_ = rested_until_ = Clock::now();
  longest_ = longest;
  spent_ = rested_ = 0;
}

void Throttle::hurry() {
  {
    const std::lock_guard lock(mutex_);
    hurries_ = true;
  }
  hurried_.notify_all();
}

bool Throttle::hurries() const {
  const std::lock_guard lock(mutex_);
  return hurries_;
}

void Throttle::spend(double seconds) {
  const std::lock_guard lock(mutex_);
  spent_ += seconds;
}

void Throttle::rest() {
  std::unique_lock lock(mutex_);
  const auto entered = Clock::now();
  const std::chrono::duration<double> until(std::min(spent_ / share, longest_));
  hurried_.wait_until(lock, start_ + std::chrono::duration_cast<Clock::duration>(until),
                      [this] { return hurries_; });
  add_rest(entered);
}

/// What another thread has rested, too, counts once.
void Throttle::add_rest(Clock::time_point entered) {
  const auto now = Clock::now();
  const auto from = std::max(entered, rested_until_);
  rested_ += std::chrono::duration<double>(now - from).count();
  rested_until_ = now;
}

double Throttle::rested() const {
  const std::lock_guard lock(mutex_);
  return rested_;
}

}  // namespace lockstep::checkpoint
