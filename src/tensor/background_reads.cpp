#include "tensor/background_reads.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

namespace lockstep {
namespace {

/// All that are under way in the process.
struct Reads {
  std::mutex mutex;
  std::condition_variable ended;
  std::list<BackgroundRead::Range> ranges;
  std::atomic<std::size_t> count = 0;  // of them, for those who ask without the mutex

  bool touch(const std::byte* begin, const std::byte* end) const {
    return std::ranges::any_of(ranges, [=](const BackgroundRead::Range& range) {
      return range.begin < end && begin < range.end;
    });
  }
};

Reads& reads() {
  static Reads all;
  return all;
}

constinit thread_local double waited = 0;

}  // namespace

BackgroundRead::BackgroundRead(const void* data, std::size_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(data);
  const std::lock_guard lock(reads().mutex);
  place_ = reads().ranges.insert(reads().ranges.end(), {begin, begin + bytes});
  ++reads().count;
}

BackgroundRead::BackgroundRead(BackgroundRead&& other) noexcept
    : place_(std::exchange(other.place_, std::nullopt)) {}

BackgroundRead::~BackgroundRead() {
  if (!place_) return;
  {
    const std::lock_guard lock(reads().mutex);
    reads().ranges.erase(*place_);
    --reads().count;
  }
  reads().ended.notify_all();
}

void wait_for_reads(const Storage& storage) {
  Reads& all = reads();
  if (all.count.load(std::memory_order_acquire) == 0) return;
  const auto* const begin = static_cast<const std::byte*>(storage.data());
  const auto* const end = begin + storage.bytes();
  std::unique_lock lock(all.mutex);
  if (!all.touch(begin, end)) return;
  const auto start = std::chrono::steady_clock::now();
  all.ended.wait(lock, [&] { return !all.touch(begin, end); });
  waited += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void wait_for_reads(const Tensor& tensor) {
  if (tensor.defined()) wait_for_reads(*tensor.impl().storage);
}

double waited_for_reads() noexcept { return waited; }

}  // namespace lockstep
