#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include <cuda_runtime_api.h>

#include "lockstep/runtime/stream.hpp"

/// @file
/// Streams kept for reuse.

namespace lockstep {

/// Keeps streams for reuse. Those that are released are not destroyed but given out again, with the
/// work that may still be queued on them: pools know streams by their handles, and the driver may
/// give the handle of a destroyed stream to a new one. Blocks that were freed in the order of the
/// former would then go to the latter, whose work nothing orders behind it. Any thread may call it.
class StreamReserve {
 public:
  /// @throws CudaError where the driver refuses a stream.
  StreamRef acquire(Device device, StreamPriority priority);
  void release(StreamRef stream) noexcept;
  /// The counters of a stream from here; null for others, and where there was no memory for them.
  std::uint32_t* counters(StreamRef stream);

 private:
  struct Kind {
    int device;
    StreamPriority priority;
    friend auto operator<=>(const Kind&, const Kind&) = default;
  };

  struct Made {
    Kind kind;
    std::uint32_t* counters;
  };

  std::mutex mutex_;
  std::map<Kind, std::vector<void*>> idle_;
  std::map<void*, Made> made_;  // all streams ever
};

}  // namespace lockstep
