#include "memory/pool_blocks.hpp"

#include <utility>
#include <vector>

#include "base/options.hpp"
#include "base/report.hpp"
#include "memory/allocations.hpp"
#include "memory/bits.hpp"
#include "memory/contents.hpp"
#include "memory/describe.hpp"
#include "memory/device_side.hpp"
#include "memory/layout.hpp"
#include "memory/patterns.hpp"

namespace simgpu {
namespace {

std::optional<PoolBlock> copy_of(const PoolBlock* block) {
  return block ? std::optional(*block) : std::nullopt;
}

/// Clears what both maps say about a range.
void close(const void* data, std::size_t bytes) {
  set_bits(Layout::live_bits, data, bytes, false);
  set_bits(Layout::initialized_bits, data, bytes, false);
}

std::byte* guard_of(const PoolBlock& block) { return block.block.data + block.block.bytes; }

std::size_t guard_bytes_of(const PoolBlock& block) { return block.capacity - block.block.bytes; }

/// The first byte of the guard that was overwritten, or null.
const std::byte* damage_of(const PoolBlock& block) {
  const auto at = first_difference(guard_of(block), guard_bytes_of(block), Pattern::guard);
  return at ? guard_of(block) + *at : nullptr;
}

std::string pool_damage_text(const PoolBlock& block, const std::byte* damage) {
  return "the guard behind memory was overwritten: " + describe_in(block.block, damage);
}

}  // namespace

PoolBlocks& PoolBlocks::instance() {
  static PoolBlocks& blocks = *new PoolBlocks();
  return blocks;
}

void PoolBlocks::allocated(const PoolBlock& block) {
  const std::uintptr_t pool = Allocations::instance().bounds_of(block.block.data).home_begin;
  const std::lock_guard lock(mutex_);
  host_pools_.insert(pool);
  on_host_.allocated(block);
}

std::optional<PoolBlock> PoolBlocks::freed(const void* data, const CallSite& site,
                                           std::string name) {
  const std::lock_guard lock(mutex_);
  return copy_of(on_host_.freed(data, site, std::move(name)));
}

std::optional<PoolBlock> PoolBlocks::find(const void* address) const {
  const std::lock_guard lock(mutex_);
  return copy_of(on_host_.find(address));
}

bool PoolBlocks::serves_pool(const void* data) const {
  const std::lock_guard lock(mutex_);
  return host_pools_.contains(number_of(data));
}

/// The allocation belongs to the blocks of a pool from now on: what lies between them is nobody's.
void PoolBlocks::open_pool(const PoolBlock& block) {
  const AllocationBounds bounds = Allocations::instance().bounds_of(block.block.data);
  const std::uintptr_t begin = bounds.home_begin, end = bounds.home_end;
  if (begin != end && device_pools_.insert(begin).second)
    for (const std::uintptr_t map : {Layout::live_bits, Layout::initialized_bits})
      set_bits_of_allocation(map, reinterpret_cast<const void*>(begin), end - begin, false);
}

void PoolBlocks::allocated_on_device(const PoolBlock& block) {
  std::byte* const data = block.block.data;
  const std::size_t bytes = block.block.bytes;
  {
    const std::lock_guard lock(mutex_);
    open_pool(block);
    fill_pattern(guard_of(block), guard_bytes_of(block), Pattern::guard);
    on_device_.allocated(block);
  }
  Contents::instance().forget(data, block.capacity);
  close(data, block.capacity);
  set_bits(Layout::live_bits, data, bytes, true);
  // Where not all work is done, values mean nothing, and more memory may be asked for than is here.
  if (options().execute == Execute::all) fill_pattern(data, bytes, Pattern::fresh);
}

void PoolBlocks::freed_on_device(const void* data, const CallSite& site) {
  std::optional<PoolBlock> block;
  {
    const std::lock_guard lock(mutex_);
    block = copy_of(on_device_.freed(data, site));
  }
  if (!block) return;
  Contents::instance().forget(data, block->capacity);
  if (const std::byte* damage = damage_of(*block))
    report(Finding::out_of_bounds, pool_damage_text(*block, damage));
  close(data, block->capacity);
}

std::vector<std::string> PoolBlocks::mend_guards(std::optional<int> device) {
  std::vector<std::pair<PoolBlock, const std::byte*>> damaged;
  {
    const DeviceSideScope scope;
    const std::lock_guard lock(mutex_);
    for (const auto& [begin, block] : on_device_.all()) {
      if (!block.live || block.block.device != device.value_or(block.block.device)) continue;
      const std::byte* damage = damage_of(block);
      if (!damage) continue;
      damaged.emplace_back(block, damage);
      fill_pattern(guard_of(block), guard_bytes_of(block), Pattern::guard);
    }
  }
  std::vector<std::string> texts;
  for (const auto& [block, damage] : damaged) texts.push_back(pool_damage_text(block, damage));
  return texts;
}

std::optional<PoolBlock> PoolBlocks::find_on_device(const void* address) const {
  const std::lock_guard lock(mutex_);
  return copy_of(on_device_.find(address));
}

bool PoolBlocks::serves_pool_on_device(const void* data) const {
  const std::lock_guard lock(mutex_);
  return device_pools_.contains(number_of(data));
}

std::optional<LiveRange> PoolBlocks::live_range(const void* data, const void* address) const {
  const std::lock_guard lock(mutex_);
  if (!device_pools_.contains(number_of(data))) return std::nullopt;
  const PoolBlock* block = on_device_.find(address);
  if (!block || !block->live) return LiveRange{};
  return LiveRange{block->begin(), block->begin() + block->block.bytes};
}

void PoolBlocks::forget_on_device(const void* data, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  device_pools_.erase(number_of(data));
  on_device_.forget(number_of(data), number_of(data) + bytes);
}

void PoolBlocks::forget_blocks(const void* data, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  on_device_.forget(number_of(data), number_of(data) + bytes);
  on_host_.forget(number_of(data), number_of(data) + bytes);
}

void PoolBlocks::forget(const void* data, std::size_t bytes) {
  forget_on_device(data, bytes);
  const std::lock_guard lock(mutex_);
  host_pools_.erase(number_of(data));
  on_host_.forget(number_of(data), number_of(data) + bytes);
}

}  // namespace simgpu
