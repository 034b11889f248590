#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/block_barrier.hpp"
#include "kernels/fence_order.hpp"
#include "kernels/thread_scheduler.hpp"
#include "kernels/warp_collectives.hpp"

/// @file
/// A block that is left because its threads wait for others.

namespace simgpu {

/// All that goes back when it goes on.
struct LeftBlock {
  uint3 index{};
  std::uint32_t shared_start = 0;  ///< the epoch with which it began
  BlockThreads threads;
  BlockBarrier::Arrivals barrier;
  WarpCollectives::Block collectives;
  FenceOrder::Left fences;
  std::vector<std::byte> static_shared, dynamic_shared;
};

}  // namespace simgpu
