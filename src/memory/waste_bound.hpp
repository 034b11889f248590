#pragma once

#include <algorithm>
#include <cstddef>

/// @file
/// When a pool whose memory can be moved page by page moves it.

namespace lockstep::detail {

/// What a pool may come to hold before it makes do with the free pages that it has: a 24th more
/// than the most that was ever live, or 32 MiB. Steps of the same shapes may want pages moved again
/// and again: what was moved it may hold in addition, until more is live than ever before. So
/// moving, which waits for the device, comes to an end.
class WasteBound {
 public:
  /// The most to hold, with `live` bytes out.
  std::size_t most(std::size_t live) noexcept {
    if (live > peak_) {
      peak_ = live;
      moved_ = 0;
    }
    return peak_ + std::max(peak_ / share, least) + moved_;
  }
  /// So many bytes were taken out to be put elsewhere.
  void moved(std::size_t bytes) noexcept { moved_ += bytes; }

 private:
  static constexpr std::size_t share = 24, least = std::size_t{32} << 20;
  std::size_t peak_ = 0, moved_ = 0;
};

}  // namespace lockstep::detail
