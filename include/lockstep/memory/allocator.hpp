#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/runtime/stream.hpp"

/// @file
/// What storage asks of a memory pool.

namespace lockstep {

/// A piece of memory handed out by an allocator. Allocators derive from it to keep their notes;
/// holders keep the pointer, so that freeing needs no look-up.
struct MemoryBlock {
  void* data = nullptr;
  /// Usable bytes: at least what was asked for.
  std::size_t size = 0;
};

/// Counters of a pool. "Live" is handed out and not returned, "reserved" is held from upstream.
struct PoolStatistics {
  std::size_t live_bytes = 0;
  std::size_t peak_live_bytes = 0;
  std::size_t reserved_bytes = 0;
  std::size_t peak_reserved_bytes = 0;
  std::uint64_t allocations = 0;
  std::uint64_t upstream_allocations = 0;
  std::uint64_t upstream_frees = 0;
  std::uint64_t out_of_memory_retries = 0;
};

/// Gives out device memory in stream order: memory returned on a stream may be given out on the
/// same stream at once, because the stream runs the two uses one after the other. All functions are
/// safe to call from any thread.
class Allocator {
 public:
  virtual ~Allocator() = default;

  /// Memory for use by work on `stream`. Zero bytes give a null block.
  /// @throws OutOfMemory naming the request and what is held.
  virtual MemoryBlock* allocate(std::size_t bytes, StreamRef stream) = 0;
  /// Returns a block in the order of its stream. Null is ignored.
  virtual void deallocate(MemoryBlock* block) noexcept = 0;
  /// Declares that work queued on `stream` uses the block, so that it is not given out again before
  /// that work is done.
  virtual void record_stream(MemoryBlock* block, StreamRef stream) = 0;
  /// Returns all unused memory to the upstream.
  virtual void release_cached() = 0;
  /// A snapshot of the counters.
  virtual PoolStatistics statistics() const = 0;
};

/// The pool that serves tensors of a device. @throws Unsupported where the build lacks the device.
Allocator& device_allocator(Device device);

/// The pool of page-locked host memory, which GPUs copy from and to while the host goes on: pass
/// the stream of a copy to `record_stream`. @throws Unsupported in a build without CUDA or on a
/// machine without a GPU.
Allocator& pinned_allocator();

}  // namespace lockstep
