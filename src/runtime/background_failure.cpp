#include "runtime/background_failure.hpp"

#include <atomic>
#include <map>
#include <mutex>
#include <utility>

namespace lockstep {
namespace {

struct Kept {
  std::atomic<bool> any{false};
  std::mutex mutex;
  std::uint64_t next = 1;
  std::map<std::uint64_t, std::function<void()>> failures;
};

// Never destroyed: threads may still watch while static objects are.
Kept& kept() {
  static Kept& all = *new Kept;
  return all;
}

constinit thread_local BackgroundFailureScope* scope = nullptr;

}  // namespace

BackgroundFailureScope::BackgroundFailureScope() : outer_(std::exchange(scope, this)) {}
BackgroundFailureScope::~BackgroundFailureScope() { scope = outer_; }

std::uint64_t keep_background_failure(std::function<void()> raise) {
  Kept& all = kept();
  const std::lock_guard lock(all.mutex);
  if (scope) scope->kept_.push_back(all.next);
  all.failures.emplace(all.next, std::move(raise));
  all.any.store(true, std::memory_order_release);
  return all.next++;
}

void forget_background_failure(std::uint64_t number) noexcept {
  Kept& all = kept();
  const std::lock_guard lock(all.mutex);
  all.failures.erase(number);
  all.any.store(!all.failures.empty(), std::memory_order_release);
}

void raise_background_failure() {
  Kept& all = kept();
  if (!all.any.load(std::memory_order_acquire)) [[likely]]
    return;
  std::map<std::uint64_t, std::function<void()>> failures;
  {
    const std::lock_guard lock(all.mutex);
    failures = all.failures;
  }
  for (const auto& [number, raise] : failures) raise();
}

}  // namespace lockstep
