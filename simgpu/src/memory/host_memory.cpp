#include "memory/host_memory.hpp"

#include <iterator>

#include "memory/layout.hpp"

namespace simgpu {

HostMemory& HostMemory::instance() {
  static HostMemory& memory = *new HostMemory();
  return memory;
}

cudaError_t HostMemory::add(const HostRange& range) {
  const std::lock_guard lock(mutex_);
  const std::uintptr_t begin = number_of(range.data);
  const auto next = ranges_.lower_bound(begin);
  const bool overlaps_next = next != ranges_.end() && next->first < begin + range.bytes;
  const bool overlaps_previous =
      next != ranges_.begin() && std::prev(next)->first + std::prev(next)->second.bytes > begin;
  if (overlaps_next || overlaps_previous) return cudaErrorHostMemoryAlreadyRegistered;
  ranges_.emplace(begin, range);
  return cudaSuccess;
}

bool HostMemory::remove(const void* data) {
  const std::lock_guard lock(mutex_);
  return ranges_.erase(number_of(data)) == 1;
}

std::optional<HostRange> HostMemory::find(const void* address) const {
  const std::lock_guard lock(mutex_);
  const auto after = ranges_.upper_bound(number_of(address));
  if (after == ranges_.begin()) return std::nullopt;
  const auto& [begin, range] = *std::prev(after);
  return number_of(address) < begin + range.bytes ? std::optional(range) : std::nullopt;
}

bool is_pageable(const void* address) {
  return !is_tracked(address) && !HostMemory::instance().find(address);
}

}  // namespace simgpu
