#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "memory/address_space.hpp"

/// @file
/// The blocks of pools, as one observer sees them.

namespace simgpu {

/// A block that a pool gave out, and may have back.
struct PoolBlock {
  Block block = {};          ///< `block.bytes` is what was asked for
  std::size_t capacity = 0;  ///< what the pool gave
  bool live = true;
  CallSite returned = {};
  std::uint64_t number = 0;            ///< of the call that gave it out (engine/host.hpp)
  std::vector<PoolBlock> former = {};  ///< whose memory it got; they know no former ones

  std::uintptr_t begin() const { return reinterpret_cast<std::uintptr_t>(block.data); }
};

/// Pool blocks by address. Blocks of the past stay known until their memory is given out again.
/// Not for several threads.
class BlockTable {
 public:
  void allocated(PoolBlock block);
  /// @param name of the memory, while it is known.
  /// @return the block, or null if none that is out begins there.
  const PoolBlock* freed(const void* data, const CallSite& site, std::string name = {});
  /// The last block, out or back, whose capacity holds the address, or that ends there.
  const PoolBlock* find(const void* address) const;
  /// The memory is no pool's any more.
  void forget(std::uintptr_t begin, std::uintptr_t end);

  const std::map<std::uintptr_t, PoolBlock>& all() const { return blocks_; }

 private:
  using Blocks = std::map<std::uintptr_t, PoolBlock>;
  Blocks::iterator first_of(std::uintptr_t begin);

  Blocks blocks_;
};

}  // namespace simgpu
