#include "memory/block_table.hpp"

#include <iterator>
#include <utility>

namespace simgpu {

void BlockTable::allocated(PoolBlock block) {
  const std::uintptr_t begin = block.begin(), end = begin + block.capacity;
  for (auto at = first_of(begin); at != blocks_.end() && at->first < end; ++at) {
    at->second.former.clear();
    block.former.push_back(std::move(at->second));
  }
  forget(begin, end);
  blocks_.emplace(begin, std::move(block));
}

const PoolBlock* BlockTable::freed(const void* data, const CallSite& site, std::string name) {
  const auto found = blocks_.find(reinterpret_cast<std::uintptr_t>(data));
  if (found == blocks_.end() || !found->second.live) return nullptr;
  found->second.live = false;
  found->second.returned = site;
  found->second.block.name = std::move(name);
  return &found->second;
}

const PoolBlock* BlockTable::find(const void* address) const {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const auto after = blocks_.upper_bound(at);
  if (after == blocks_.begin()) return nullptr;
  const PoolBlock& candidate = std::prev(after)->second;
  return at <= candidate.begin() + candidate.capacity ? &candidate : nullptr;
}

/// The first block that ends behind `begin`.
BlockTable::Blocks::iterator BlockTable::first_of(std::uintptr_t begin) {
  const auto at = blocks_.lower_bound(begin);
  if (at == blocks_.begin()) return at;
  const auto before = std::prev(at);
  return before->first + before->second.capacity > begin ? before : at;
}

void BlockTable::forget(std::uintptr_t begin, std::uintptr_t end) {
  auto at = first_of(begin);
  while (at != blocks_.end() && at->first < end) at = blocks_.erase(at);
}

}  // namespace simgpu
