#include "simgpu/memory/block_table.hpp"

#include <iterator>
#include <utility>

namespace simgpu {

void BlockTable::hand_out(PoolBlock block) {
  const std::uintptr_t begin = block.begin();
  forget(begin, begin + block.capacity);
  blocks_.emplace(begin, std::move(block));
}

const PoolBlock* BlockTable::take_back(const void* data, const CallSite& site) {
  const auto found = blocks_.find(reinterpret_cast<std::uintptr_t>(data));
  if (found == blocks_.end() || !found->second.live) return nullptr;
  found->second.live = false;
  found->second.returned = site;
  return &found->second;
}

const PoolBlock* BlockTable::find(const void* address) const {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const auto after = blocks_.upper_bound(at);
  if (after == blocks_.begin()) return nullptr;
  const PoolBlock& candidate = std::prev(after)->second;
  return at <= candidate.begin() + candidate.capacity ? &candidate : nullptr;
}

void BlockTable::forget(std::uintptr_t begin, std::uintptr_t end) {
  auto at = blocks_.lower_bound(begin);
  if (at != blocks_.begin()) {
    const auto before = std::prev(at);
    if (before->second.begin() + before->second.capacity > begin) at = before;
  }
  while (at != blocks_.end() && at->first < end) at = blocks_.erase(at);
}

}  // namespace simgpu
