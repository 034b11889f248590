#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "lockstep/core/function_ref.hpp"
#include "lockstep/memory/memory_pool.hpp"

/// @file
/// Memory of captured steps.

namespace lockstep {

/// The memory that captured graphs write to: apart from the device's pool, so that an address that
/// is in a graph belongs to nobody else as long as the graph lives. Graphs that run one after the
/// other share one.
///
/// What the step itself returns while it is captured may be given out again within it. What is
/// returned later (a result that the program drops) stays aside until no graph is left that has it,
/// because launches go on writing there.
class PrivatePool final : public Allocator {
 public:
  /// One that nobody uses. It is never destroyed, since tensors may outlive whoever used it.
  /// @throws Unsupported where the device's pool keeps no memory (LOCKSTEP_POOL).
  static PrivatePool& borrow(Device device);
  /// No graph is left, and the device has done what was queued.
  void give_back();
  /// The same, of one that is used further.
  void release_aside();
  /// Takes back what is aside and in no graph that is left; the device has done what was queued.
  /// @param is_in_graph told the address of a block
  void reclaim_aside(FunctionRef<bool(const void*)> is_in_graph);

  /// The pool behind it.
  MemoryPool& memory() noexcept { return *pool_; }

  MemoryBlock* allocate(std::size_t bytes, StreamRef stream) override;
  void deallocate(MemoryBlock* block) noexcept override;
  void record_stream(MemoryBlock* block, StreamRef stream) override {
    pool_->record_stream(block, stream);
  }
  void release_cached() override { pool_->release_cached(); }
  PoolStatistics statistics() const override { return pool_->statistics(); }

 private:
  PrivatePool(Device device, std::unique_ptr<MemoryPool> pool)
      : device_(device), pool_(std::move(pool)) {}
  /// False if somebody uses it.
  bool take();
  MemoryBlock* take_block(std::size_t bytes, StreamRef stream, bool captures);

  Device device_;
  std::unique_ptr<MemoryPool> pool_;
  bool is_taken_ = true;
  std::mutex mutex_;
  std::vector<MemoryBlock*> aside_;
};

}  // namespace lockstep
