#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "memory/block_table.hpp"
#include "memory/fast_path.hpp"

/// @file
/// The blocks of lockstep's pools, seen twice.

namespace simgpu {

/// Pool blocks as the *host* sees them, who has a block from the call that gives it out, and as the
/// *device* does, for which it comes and goes in stream order: work that was queued before a block
/// went back may still run. Thread-safe.
class PoolBlocks {
 public:
  /// The one instance, never destroyed.
  static PoolBlocks& instance();

  /// Host: the block is out, or back; nothing if none begins there.
  void allocated(const PoolBlock& block);
  std::optional<PoolBlock> freed(const void* data, const CallSite& site, std::string name = {});
  /// The block around an address, out or back; nothing for memory of no pool.
  std::optional<PoolBlock> find(const void* address) const;
  /// True if blocks of the allocation that begins at `data` were ever given out.
  bool serves_pool(const void* data) const;

  /// Device: marks the block uninitialised and fills it, guard included.
  void allocated_on_device(const PoolBlock& block);
  /// Device: checks the guard behind the block; nothing may touch it from now on.
  void freed_on_device(const void* data, const CallSite& site);
  /// Fills the damaged guards of live blocks again, of a device or of all. Any thread.
  /// @return for each of them, what a report says
  std::vector<std::string> mend_guards(std::optional<int> device);
  std::optional<PoolBlock> find_on_device(const void* address) const;
  bool serves_pool_on_device(const void* data) const;
  /// Device: the bounds of the live pool block at the address, empty if there is none; nothing if
  /// the allocation that begins at `data` serves no pool.
  std::optional<LiveRange> live_range(const void* data, const void* address) const;

  /// The allocation is about to be freed, and was.
  void forget_on_device(const void* data, std::size_t bytes);
  void forget(const void* data, std::size_t bytes);
  /// A part of the pool's memory is about to go.
  void forget_blocks(const void* data, std::size_t bytes);

 private:
  void open_pool(const PoolBlock& block);

  mutable std::mutex mutex_;
  BlockTable on_host_, on_device_;
  std::set<std::uintptr_t> host_pools_, device_pools_;  // allocations, by their beginning
};

}  // namespace simgpu
