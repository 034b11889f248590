#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "memory/recent_cache.hpp"

namespace lockstep::detail {

/// What is out of a pool, but for what went through its caches since they were asked last.
struct PoolCounts {
  std::ptrdiff_t live_bytes = 0, peak_live_bytes = 0;
  std::uint64_t allocations = 0;

  void allocated(std::size_t bytes) noexcept {
    add({static_cast<std::ptrdiff_t>(bytes), static_cast<std::ptrdiff_t>(bytes), 1});
  }
  void freed(std::size_t bytes) noexcept { live_bytes -= static_cast<std::ptrdiff_t>(bytes); }
  /// Counts what went through a cache.
  void add(RecentCache& cache) noexcept {
    if (cache.is_used()) add(cache.counts());
  }

 private:
  /// Peaks are exact where one thread allocates; several at once may each count up to what a
  /// RecentCache keeps as used that is not.
  void add(const RecentCounts& recent) noexcept {
    peak_live_bytes = std::max(peak_live_bytes, live_bytes + recent.peak_live_bytes);
    live_bytes += recent.live_bytes;
    allocations += recent.allocations;
  }
};

}  // namespace lockstep::detail
