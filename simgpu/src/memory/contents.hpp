#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "base/access.hpp"
#include "base/actor.hpp"
#include "base/call_site.hpp"
#include "memory/range_map.hpp"

/// @file
/// What the program says of the worth of what memory holds (lockstep/memory/block_observer.hpp).

namespace simgpu {

/// Results that nobody has read yet, and memory whose content nobody wants. Follows the order in
/// which operations run. Thread-safe.
class Contents {
 public:
  /// The one instance, never destroyed.
  static Contents& instance();

  /// The memory holds a result, by what the program says at `site`.
  void complete(const void* data, std::size_t bytes, const CallSite& site);
  /// Nobody wants what it holds: it counts as not written.
  void discard(const void* data, std::size_t bytes, const CallSite& site);
  /// The memory belongs to somebody else.
  void forget(const void* data, std::size_t bytes);

  /// An operation has run. A finding if it overwrote a result that it did not read, nor anybody
  /// before it.
  /// @param are_exact false for touched ranges of a kernel that may have been joined over gaps.
  void has_run(const Actor& actor, const std::vector<Access>& accesses, bool are_exact);

  /// Where the content of a byte was discarded that nothing was written to since.
  std::optional<CallSite> discarded_at(const void* address) const;

 private:
  void overwrite(const Actor& actor, const Access& access);

  mutable std::mutex mutex_;
  RangeMap<CallSite> results_, discarded_;
};

}  // namespace simgpu
