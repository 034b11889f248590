#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "lockstep/core/device.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/memory/allocator.hpp"

/// @file
/// What takes the place of pools with LOCKSTEP_POOL=off.

namespace lockstep {

/// Brings every request straight to its source, so that memory checkers see each block.
/// @tparam Source has `void* allocate(std::size_t)`, null where there is no more memory, and
/// `void deallocate(void*, std::size_t)`, which waits for the work that may still use the memory.
template <class Source>
class UnpooledAllocator final : public Allocator {
 public:
  UnpooledAllocator(Source source, Device device) : source_(std::move(source)), device_(device) {}

  MemoryBlock* allocate(std::size_t bytes, StreamRef) override {
    if (bytes == 0) return nullptr;
    auto block = std::make_unique<MemoryBlock>();
    if (bytes <= largest_request) block->data = source_.allocate(bytes);
    LOCKSTEP_CHECK(block->data, OutOfMemory, "out of memory on ", device_, ": asked for ", bytes,
                   " bytes");
    block->size = bytes;
    count(bytes);
    return block.release();
  }
  void deallocate(MemoryBlock* block) noexcept override {
    if (!block) return;
    live_bytes_ -= block->size;
    source_.deallocate(block->data, block->size);
    delete block;
  }
  void record_stream(MemoryBlock*, StreamRef) override {}
  void release_cached() override {}
  PoolStatistics statistics() const override {
    const std::size_t live = live_bytes_, peak = peak_live_bytes_;
    return {.live_bytes = live,
            .peak_live_bytes = peak,
            .reserved_bytes = live,
            .peak_reserved_bytes = peak,
            .allocations = allocations_};
  }

 private:
  static constexpr std::size_t largest_request = std::size_t{1} << 48;

  void count(std::size_t bytes) {
    ++allocations_;
    const std::size_t live = live_bytes_ += bytes;
    std::size_t peak = peak_live_bytes_;
    while (peak < live && !peak_live_bytes_.compare_exchange_weak(peak, live)) {
    }
  }

  Source source_;
  Device device_;
  std::atomic<std::size_t> live_bytes_ = 0, peak_live_bytes_ = 0;
  std::atomic<std::uint64_t> allocations_ = 0;
};

}  // namespace lockstep
