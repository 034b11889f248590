#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string_view>

#include "lockstep/memory/allocator.hpp"
#include "lockstep/memory/memory_snapshot.hpp"

/// @file
/// What programs ask of a pool, beyond what storage does.

namespace lockstep {

/// A pool of memory that can be limited, trimmed and looked into. All functions are safe to call
/// from any thread.
class MemoryPool : public Allocator {
 public:
  /// The most that the pool may hold from its upstream; returns what is cached beyond it. What is
  /// in use stays, and nothing more is asked for until it fits.
  virtual void set_limit(std::size_t bytes) = 0;
  /// What was set; without that the largest number.
  virtual std::size_t limit() const = 0;
  /// Returns cached memory to the upstream, without waiting for blocks in use, until no more than
  /// `keep` bytes are reserved or all that is left is in use.
  virtual void trim(std::size_t keep = 0) = 0;
  /// The peaks are what is live and reserved now.
  virtual void reset_peak() = 0;
  /// Calls a function with the reserved bytes each time they come to exceed `bytes`, on the thread
  /// whose request did that, which may use the pool in it; an empty function ends that. It must not
  /// throw.
  virtual void set_high_water(std::size_t bytes, std::function<void(std::size_t)> reached) = 0;
  /// Records from now on the last `max_events` events, and who allocates (about 0.3 us an
  /// allocation); nothing ends that, and drops what was recorded.
  virtual void record_history(std::optional<std::size_t> max_events) = 0;
  /// What it holds, and the events that were recorded.
  virtual MemorySnapshot snapshot() const = 0;
};

/// What serves the memory of devices.
enum class PoolKind : unsigned char {
  caching,   ///< the library's own, over segments of the driver, or of the C library
  growable,  ///< the same over segments that grow and shrink by pages, put where they are needed
  async,     ///< cudaMallocAsync on GPUs (pinned memory as `caching`); on the CPU as `none`
  none,      ///< the driver or the C library for each request, so that checkers see each block
};

/// Chooses by name: "caching", "growable", "async", "none", or "off", which is "none". What is
/// chosen here goes before the environment variable LOCKSTEP_POOL. To be called before anything is
/// allocated. @throws InvalidArgument for another name, or once there is a pool.
void set_pool(std::string_view name);

/// What was chosen: by `set_pool`, else by LOCKSTEP_POOL, else `caching`.
PoolKind pool_kind();

/// The pool that serves tensors of a device: what `device_allocator` gives.
MemoryPool& memory_pool(Device device);

}  // namespace lockstep
