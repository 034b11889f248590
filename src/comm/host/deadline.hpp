#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace lockstep::comm::host {

using Clock = std::chrono::steady_clock;

/// When to give up what is under way. Another thread may bring it forward for one rank, as when
/// that has left and nothing can come from it but what is on its way.
class Deadline {
 public:
  /// Never.
  Deadline() = default;
  /// Of a wait for ranks that wait themselves for what another deadline limits: somewhat later, so
  /// that who knows best whom all wait for says so first.
  /// @param whole outlives this object. @param check called now and then; what it throws ends the
  /// wait. @param numbers of the ranks there; empty: no rank's deadline comes forward.
  Deadline(const Deadline& whole, Clock::duration grace, std::function<void()> check = nullptr,
           std::vector<int> numbers = {})
      : whole_(&whole), grace_(grace), check_(std::move(check)), numbers_(std::move(numbers)) {}

  /// Of something new, whoever it waits for.
  /// @param late when a wait that still goes on is long.
  void set(Clock::time_point at, Clock::time_point late = Clock::time_point::max()) {
    const std::lock_guard lock(mutex_);
    by_rank_.clear();
    last_.store(at);
    nearest_.store(at);
    late_.store(late);
  }
  /// What is called once of each long wait, by whoever waits. To be set before any does.
  void when_late(std::function<void()> call) { when_late_ = std::move(call); }
  /// What is called once of each `ask`, by whoever waits, within some 50 ms. To be set before any
  /// does.
  void when_asked(std::function<void()> call) { when_asked_ = std::move(call); }
  /// From any thread.
  void ask() { is_asked_.store(true); }
  /// For what waits for a rank.
  void bring_forward(int rank, Clock::time_point at) {
    const std::lock_guard lock(mutex_);
    by_rank_.emplace_back(rank, at);
    nearest_.store(std::min(nearest_.load(), at));
  }

  /// False as long as `is_over` is, whoever is waited for; costs no more than a look at the clock.
  bool may_be_over() const {
    const auto now = Clock::now();
    if (!whole_) {
      look_up(now);
      return now >= nearest_.load();
    }
    whole_->look_up(now);
    if (check_) check_();
    const auto& first = numbers_.empty() ? whole_->last_ : whole_->nearest_;
    return now - grace_ >= first.load();
  }
  /// True if waiting for any of these ranks should end.
  bool is_over(std::span<const int> ranks) const {
    if (!whole_) {
      const auto now = Clock::now();
      look_up(now);
      return is_over(ranks, now);
    }
    return may_be_over() && whole_->is_over(numbers_of(ranks), Clock::now() - grace_);
  }

 private:
  void look_up(Clock::time_point now) const {
    if (is_asked_.load(std::memory_order_relaxed) && is_asked_.exchange(false)) [[unlikely]]
      when_asked_();
    if (now < late_.load()) [[likely]]
      return;
    if (late_.exchange(Clock::time_point::max()) != Clock::time_point::max()) when_late_();
  }
  bool is_over(std::span<const int> ranks, Clock::time_point now) const {
    if (now < nearest_.load()) return false;
    if (now >= last_.load()) return true;
    const std::lock_guard lock(mutex_);
    return std::ranges::any_of(by_rank_, [&](const auto& entry) {
      return now >= entry.second && std::ranges::find(ranks, entry.first) != ranks.end();
    });
  }
  std::vector<int> numbers_of(std::span<const int> ranks) const {
    std::vector<int> numbers;
    for (std::size_t i = 0; i < ranks.size() && !numbers_.empty(); ++i)
      numbers.push_back(numbers_[static_cast<std::size_t>(ranks[i])]);
    return numbers;
  }

  const Deadline* whole_ = nullptr;
  Clock::duration grace_{};
  std::function<void()> check_;
  std::vector<int> numbers_;
  std::atomic<Clock::time_point> last_{Clock::time_point::max()},
      nearest_{Clock::time_point::max()};
  mutable std::atomic<Clock::time_point> late_{Clock::time_point::max()};
  mutable std::atomic<bool> is_asked_{false};
  std::function<void()> when_late_, when_asked_;
  mutable std::mutex mutex_;
  std::vector<std::pair<int, Clock::time_point>> by_rank_;
};

}  // namespace lockstep::comm::host
