#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <zlib.h>

#include "lockstep/memory/allocator.hpp"

/// @file
/// Recorded allocations of training steps (scripts/pool_trace.py).

namespace lockstep::testing {

/// What happened, in order: a positive number is a request of so many bytes, -k returns the k-th
/// block that was requested, counted from 1.
using AllocationTrace = std::vector<std::int64_t>;

/// Reads a trace: text with one number a line, compressed by gzip.
inline AllocationTrace read_trace(const std::filesystem::path& path) {
  const gzFile file = gzopen(path.c_str(), "rb");
  if (!file) throw std::runtime_error("cannot open " + path.string());
  AllocationTrace trace;
  char line[64];
  while (gzgets(file, line, sizeof line)) trace.push_back(std::stoll(line));
  gzclose(file);
  return trace;
}

/// Most bytes that were requested and not returned at a time.
inline std::size_t peak_requested(const AllocationTrace& trace) {
  std::vector<std::int64_t> sizes;
  std::int64_t live = 0, peak = 0;
  for (const std::int64_t event : trace) {
    if (event > 0) sizes.push_back(event);
    live += event > 0 ? event : -sizes[static_cast<std::size_t>(-event - 1)];
    peak = std::max(peak, live);
  }
  return static_cast<std::size_t>(peak);
}

/// Does to an allocator what traces say, one after the other, and returns what they leave.
class TraceReplay {
 public:
  TraceReplay(Allocator& pool, StreamRef stream) : pool_(pool), stream_(stream) {}
  TraceReplay(const TraceReplay&) = delete;
  TraceReplay& operator=(const TraceReplay&) = delete;
  ~TraceReplay() {
    for (MemoryBlock* block : blocks_) pool_.deallocate(block);
  }

  /// @param trace a whole one, or what `last_step` gives.
  void run(const AllocationTrace& trace, bool counts_back = false) {
    for (const std::int64_t event : trace) {
      if (event > 0) {
        blocks_.push_back(pool_.allocate(static_cast<std::size_t>(event), stream_));
        continue;
      }
      const auto last = static_cast<std::int64_t>(blocks_.size());
      const std::int64_t which = counts_back ? last + event : -event - 1;
      pool_.deallocate(std::exchange(blocks_[static_cast<std::size_t>(which)], nullptr));
    }
  }

 private:
  Allocator& pool_;
  StreamRef stream_;
  std::vector<MemoryBlock*> blocks_;
};

/// The last step of a trace whose last two are alike. In it -k returns the k-th block before the
/// next request, so that it can be run again and again.
inline AllocationTrace last_step(const AllocationTrace& trace) {
  AllocationTrace back;
  std::int64_t requests = 0;
  for (const std::int64_t event : trace) {
    requests += event > 0;
    back.push_back(event > 0 ? event : -(requests + event + 1));
  }
  for (std::size_t length = back.size() / 8; 2 * length <= back.size(); ++length)
    if (std::equal(back.end() - static_cast<std::ptrdiff_t>(length), back.end(),
                   back.end() - static_cast<std::ptrdiff_t>(2 * length)))
      return {back.end() - static_cast<std::ptrdiff_t>(length), back.end()};
  throw std::runtime_error("the last two steps of the trace differ");
}

}  // namespace lockstep::testing
