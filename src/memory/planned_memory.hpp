#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "lockstep/memory/memory_planner.hpp"
#include "lockstep/memory/memory_pool.hpp"
#include "lockstep/runtime/device_runtime.hpp"
#include "memory/lifetime_plan.hpp"
#include "memory/spin_lock.hpp"
#include "memory/waiting_blocks.hpp"

/// @file
/// What serves the steps of a MemoryPlanner.

namespace lockstep {

/// Memory in which steps that are alike have planned places, in front of a pool, which serves all
/// else. A place is given out only while nobody has memory that overlaps it, whatever the step does
/// otherwise than the recorded one; so a plan can be useless, but not wrong.
///
/// One thread at a time has a step; blocks come back from any.
class PlannedMemory final : public Allocator {
 public:
  /// Requests up to this go to the pool: threads keep such blocks, and they are next to nothing.
  static constexpr std::size_t small_limit = std::size_t{64} << 10;

  /// One that nobody uses. It is never destroyed, since tensors may outlive whoever used it.
  static PlannedMemory& borrow(Device device);
  /// No step follows.
  void give_back() noexcept;

  /// @param pool,runtime must outlive it
  /// @param plans false: all steps are left to the pool
  PlannedMemory(MemoryPool& pool, DeviceRuntime& runtime, Device device, bool plans = true);
  /// Blocks still out become invalid.
  ~PlannedMemory() override;

  /// @param stream whose requests the plan is for. @throws InvalidArgument within another step.
  void begin_step(StreamRef stream);
  void end_step() noexcept;

  Device device() const noexcept { return device_; }
  MemoryPlannerStatistics planner_statistics() const;

  MemoryBlock* allocate(std::size_t bytes, StreamRef stream) override;
  void deallocate(MemoryBlock* block) noexcept override;
  void record_stream(MemoryBlock* block, StreamRef stream) override;
  void release_cached() override { pool_.release_cached(); }
  PoolStatistics statistics() const override { return pool_.statistics(); }

 private:
  /// A request of the recorded step.
  struct Request {
    std::size_t bytes;
    std::size_t begin, end;  // events of the step; end 0: it stays for longer
    std::size_t place;       // in the plan
    static constexpr std::size_t nowhere = ~std::size_t{0};
  };
  struct Arena;
  struct Place;

  enum class Kind : std::uint8_t { left_alone, recorded, planned };
  static constexpr int most_others = 2;

  Kind kind_of_next() const noexcept;
  void count_planned(bool went_as_planned) noexcept;
  /// The plan is of no use any more.
  bool has_failed() const noexcept { return others_in_a_row_ >= most_others; }
  void put_off() noexcept;
  bool make_plan();
  std::size_t guard_bytes() const noexcept;
  void take_free_pieces(Arena& arena);
  void place(Arena& arena, std::span<const detail::Lifetime> lifetimes);
  void give_back_pieces(Arena& arena) noexcept;
  void drop_arena();
  void return_if_empty(Arena& arena);
  void reclaim_finished();
  MemoryBlock* record(std::size_t bytes, StreamRef stream);
  MemoryBlock* serve(std::size_t bytes);
  Arena* arena_of(const MemoryBlock* block) noexcept;
  void free_place(Place& place) noexcept;

  MemoryPool& pool_;
  DeviceRuntime& runtime_;
  const Device device_;
  const bool plans_;

  // Of the thread that has a step.
  std::atomic<bool> is_open_{false};
  Kind kind_ = Kind::left_alone;
  StreamRef stream_;
  std::size_t next_ = 0;       // request
  bool is_otherwise_ = false;  // than planned: the rest of the step is the pool's
  bool is_late_ = false;       // a place was not free
  int others_in_a_row_ = 0;    // steps that did otherwise than planned
  bool has_served_ = false;    // a step went as planned
  int rest_ = 0;               // steps to leave alone before the next is recorded
  int most_rest_ = 1;
  std::vector<Request> requests_;

  // Guarded by the lock.
  mutable detail::SpinLock lock_;
  bool records_ = false;
  std::size_t event_ = 0;
  std::unordered_map<const MemoryBlock*, std::size_t> open_;  // recorded requests that are out
  std::unique_ptr<Arena> arena_;
  std::vector<std::unique_ptr<Arena>> former_;  // of which some places are still out
  detail::WaitingBlocks<Place> waiting_;
  MemoryPlannerStatistics counts_;
  bool is_taken_ = true;
};

}  // namespace lockstep
