#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/memory/memory_pool.hpp"
#include "lockstep/runtime/device_runtime.hpp"
#include "memory/allocation_history.hpp"

/// @file
/// What takes the place of caching pools: every request goes to its source.

namespace lockstep {

/// A block of a DirectPool.
struct DirectBlock : MemoryBlock {
  StreamRef stream;
  std::vector<StreamRef> other_streams;
};

/// Counts, limits and records what goes through to a source that keeps nothing here.
class DirectPool : public MemoryPool {
 public:
  explicit DirectPool(Device device) : device_(device) {}

  MemoryBlock* allocate(std::size_t bytes, StreamRef stream) override;
  void deallocate(MemoryBlock* memory) noexcept override;
  void record_stream(MemoryBlock* memory, StreamRef stream) override;
  void release_cached() override {}
  PoolStatistics statistics() const override;

  void set_limit(std::size_t bytes) override;
  std::size_t limit() const override;
  void trim(std::size_t) override {}
  void reset_peak() override;
  void set_high_water(std::size_t bytes, std::function<void(std::size_t)> reached) override;
  void record_history(std::optional<std::size_t> max_events) override;
  MemorySnapshot snapshot() const override;

 protected:
  /// Memory for work on the stream, or null where there is no more.
  virtual void* obtain(std::size_t bytes, StreamRef stream) = 0;
  /// Gives it back in the order of its stream, behind what other streams do with it now.
  virtual void give_back(const DirectBlock& block) noexcept = 0;

 private:
  void count_in(std::size_t bytes);
  void count_out(std::size_t bytes) noexcept;
  [[noreturn]] void throw_out_of_memory(std::size_t bytes, StreamRef stream);

  mutable std::mutex mutex_;
  Device device_;
  std::size_t live_bytes_ = 0, peak_live_bytes_ = 0, limit_ = ~std::size_t{0};
  std::uint64_t allocations_ = 0;
  std::size_t high_water_ = ~std::size_t{0};
  std::function<void(std::size_t)> reached_;
  std::unique_ptr<detail::AllocationHistory> history_;
};

/// Brings every request straight to its source, so that memory checkers see each block.
/// @tparam Source has `void* allocate(std::size_t)`, null where there is no more memory, and
/// `void deallocate(void*, std::size_t)`, which waits for the work that may still use the memory.
template <class Source>
class UnpooledAllocator final : public DirectPool {
 public:
  /// @param runtime if the source does not wait: then this does, for the other streams of a block.
  UnpooledAllocator(Source source, Device device, DeviceRuntime* runtime = nullptr)
      : DirectPool(device), source_(std::move(source)), runtime_(runtime) {}

 private:
  void* obtain(std::size_t bytes, StreamRef) override { return source_.allocate(bytes); }
  void give_back(const DirectBlock& block) noexcept override {
    if (runtime_)
      for (const StreamRef stream : block.other_streams) try {
          runtime_->synchronize(stream);
        } catch (const Error&) {
          // A device that has failed uses nothing any more.
        }
    source_.deallocate(block.data, block.size);
  }

  Source source_;
  DeviceRuntime* runtime_;
};

}  // namespace lockstep
