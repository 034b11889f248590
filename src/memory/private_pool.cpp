#include "memory/private_pool.hpp"

#include "lockstep/core/error.hpp"
#include "memory/allocator_override.hpp"
#include "memory/device_allocators.hpp"
#include "runtime/step_recording.hpp"

namespace lockstep {
namespace {

std::mutex pools_mutex;

}  // namespace

PrivatePool& PrivatePool::borrow(Device device) {
  static auto& all = *new std::vector<std::unique_ptr<PrivatePool>>;
  const std::lock_guard lock(pools_mutex);
  for (const auto& pool : all)
    if (pool->device_ == device && pool->take()) return *pool;
  auto memory = new_memory_pool(device);
  LOCKSTEP_CHECK(memory, Unsupported,
                 "a step is captured with memory of its own, which the chosen pool (set_pool, "
                 "LOCKSTEP_POOL) does not keep; choose \"caching\"");
  all.push_back(std::unique_ptr<PrivatePool>(new PrivatePool(device, std::move(memory))));
  return *all.back();
}

bool PrivatePool::take() {
  const std::lock_guard lock(mutex_);
  return !std::exchange(is_taken_, true);
}

void PrivatePool::give_back() {
  release_aside();
  const std::lock_guard lock(mutex_);
  is_taken_ = false;
}

void PrivatePool::release_aside() {
  const std::lock_guard lock(mutex_);
  for (MemoryBlock* block : std::exchange(aside_, {})) pool_->deallocate(block);
  pool_->release_cached();
}

void PrivatePool::reclaim_aside(FunctionRef<bool(const void*)> is_in_graph) {
  const std::lock_guard lock(mutex_);
  std::erase_if(aside_, [&](MemoryBlock* block) {
    if (is_in_graph(block->data)) return false;
    pool_->deallocate(block);
    return true;
  });
}

/// What the device's own pool has cached is given back where that is what is missing; not in a
/// capture, where a device frees nothing.
MemoryBlock* PrivatePool::take_block(std::size_t bytes, StreamRef stream, bool captures) {
  try {
    return pool_->allocate(bytes, stream);
  } catch (const OutOfMemory&) {
    if (captures) throw;
  }
  memory_pool(device_).release_cached();
  return pool_->allocate(bytes, stream);
}

MemoryBlock* PrivatePool::allocate(std::size_t bytes, StreamRef stream) {
  StepRecording* const recording = StepRecording::on(stream.device);
  MemoryBlock* const block = take_block(bytes, stream, recording != nullptr);
  if (recording && block)
    recording->note_memory(block->data, block->size, stream);  // null for no bytes
  return block;
}

void PrivatePool::deallocate(MemoryBlock* block) noexcept {
  if (detail::AllocatorOverride::of(device_) == this) return pool_->deallocate(block);
  const std::lock_guard lock(mutex_);
  if (is_taken_)
    aside_.push_back(block);
  else
    pool_->deallocate(block);
}

}  // namespace lockstep
