#pragma once

#include <atomic>
#include <cstddef>
#include <string_view>

#include "lockstep/memory/allocator.hpp"

/// @file
/// Lets a tool follow the blocks of the memory pools: a checker, a profiler.

namespace lockstep {

/// Is told of every block that a pool allocates and frees. Called by whichever thread uses the
/// pool, with the pool's lock held: it must not call the pool.
class BlockObserver {
 public:
  virtual ~BlockObserver() = default;
  /// Bytes that pools of `device` shall leave unused behind each block, so that a write past its
  /// end hits none of the neighbours. Asked at each allocation.
  virtual std::size_t guard_bytes(Device device) const noexcept = 0;
  /// @param block what was allocated; all of `block.size` belongs to it.
  /// @param bytes what was asked for, at most `block.size`.
  /// @param stream the stream in whose order the block may be used.
  virtual void allocated(const MemoryBlock& block, std::size_t bytes,
                         StreamRef stream) noexcept = 0;
  /// The block may be allocated again for work queued on `stream` from now on. A block that other
  /// streams used (`record_stream`) is freed when these are done with it.
  virtual void freed(const MemoryBlock& block, StreamRef stream) noexcept = 0;
  /// The program says what lies at `data`. The memory may be part of a block, or of none.
  virtual void named(const void* data, std::size_t bytes, std::string_view name) noexcept = 0;
  /// What the work queued on `stream` leaves in the memory is complete, and somebody wants it: it
  /// will be read, or discarded, before it is overwritten. The memory may be part of a block.
  virtual void completed(const void*, std::size_t, StreamRef) noexcept {}
  /// Nobody wants what the work queued on `stream` leaves in the memory: it will be written before
  /// it is read. The memory may be part of a block.
  virtual void discarded(const void*, std::size_t, StreamRef) noexcept {}
};

namespace detail {
inline std::atomic<BlockObserver*> current_block_observer{nullptr};
}  // namespace detail

/// The observer, or null.
inline BlockObserver* block_observer() noexcept {
  return detail::current_block_observer.load(std::memory_order_acquire);
}

/// Makes `observer` see all that pools do from now on; null ends it. The observer must outlive all
/// use of pools, on any thread. Blocks that are out already are not told of.
inline void set_block_observer(BlockObserver* observer) noexcept {
  detail::current_block_observer.store(observer, std::memory_order_release);
}

/// Tells the observer, if there is one, what lies in a piece of memory ("bucket 3").
inline void name_memory(const void* data, std::size_t bytes, std::string_view name) noexcept {
  if (BlockObserver* observer = block_observer()) [[unlikely]]
    observer->named(data, bytes, name);
}

/// Tells the observer, if there is one, that the memory holds a result, once the device's current
/// stream of this thread is so far: a checker can tell if it is lost.
inline void complete_memory(const void* data, std::size_t bytes, Device device) noexcept {
  if (BlockObserver* observer = block_observer()) [[unlikely]]
    observer->completed(data, bytes, current_stream(device));
}

/// Tells the observer, if there is one, that nobody will read what the memory holds, once the
/// device's current stream of this thread is so far: a checker can tell if somebody does.
inline void discard_memory(const void* data, std::size_t bytes, Device device) noexcept {
  if (BlockObserver* observer = block_observer()) [[unlikely]]
    observer->discarded(data, bytes, current_stream(device));
}

}  // namespace lockstep
