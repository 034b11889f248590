#include "memory/memory_pools.hpp"

#include <cstring>

#include "base/options.hpp"
#include "memory/address_space.hpp"

namespace simgpu {
namespace {

bool is_flag(cudaMemPoolAttr attribute) {
  return attribute >= cudaMemPoolReuseFollowEventDependencies &&
         attribute <= cudaMemPoolReuseAllowInternalDependencies;
}

std::size_t flag_index(cudaMemPoolAttr attribute) {
  return static_cast<std::size_t>(attribute - cudaMemPoolReuseFollowEventDependencies);
}

}  // namespace

std::array<MemoryPool, 16>& MemoryPool::all() {
  static auto& pools = *[] {
    auto* made = new std::array<MemoryPool, 16>();
    for (std::size_t i = 0; i < made->size(); ++i) (*made)[i].device_ = static_cast<int>(i);
    return made;
  }();
  return pools;
}

MemoryPool* MemoryPool::from(cudaMemPool_t handle) {
  for (MemoryPool& pool : all())
    if (reinterpret_cast<cudaMemPool_t>(&pool) == handle) return &pool;
  return nullptr;
}

cudaError_t MemoryPool::of_device(cudaMemPool_t* handle, int device) {
  if (!handle) return cudaErrorInvalidValue;
  if (device < 0 || device >= options().devices) return cudaErrorInvalidDevice;
  *handle = reinterpret_cast<cudaMemPool_t>(&all()[static_cast<std::size_t>(device)]);
  return cudaSuccess;
}

cudaError_t MemoryPool::set(cudaMemPoolAttr attribute, const void* value) {
  const std::lock_guard lock(mutex_);
  if (is_flag(attribute)) {
    std::memcpy(&flags_[flag_index(attribute)], value, sizeof(int));
  } else if (attribute == cudaMemPoolAttrReleaseThreshold) {
    std::memcpy(&release_threshold_, value, sizeof release_threshold_);
  } else if (attribute != cudaMemPoolAttrReservedMemHigh &&
             attribute != cudaMemPoolAttrUsedMemHigh) {  // those can be set back, to no effect here
    return cudaErrorInvalidValue;
  }
  return cudaSuccess;
}

cudaError_t MemoryPool::get(cudaMemPoolAttr attribute, void* value) const {
  const std::lock_guard lock(mutex_);
  if (is_flag(attribute)) {
    std::memcpy(value, &flags_[flag_index(attribute)], sizeof(int));
    return cudaSuccess;
  }
  const std::uint64_t used = total_memory(device_) - free_memory(device_);
  const std::uint64_t found =
      attribute == cudaMemPoolAttrReleaseThreshold ? release_threshold_ : used;
  std::memcpy(value, &found, sizeof found);
  return cudaSuccess;
}

}  // namespace simgpu
