#pragma once

#include <array>
#include <cstdint>

#include "kernels/fiber.hpp"
#include "kernels/ready_queue.hpp"
#include "simgpu/launch.hpp"

/// @file
/// Runs the CUDA threads of one block after the other. Threads run as plain calls, one after the
/// other on one fiber, until one waits: then that fiber is left as it stands and another one goes
/// on. Kernels that never wait cost a function call a thread.

namespace simgpu {

/// Where a CUDA thread stands.
enum class ThreadState : unsigned char { running, at_barrier, at_warp_collective, spinning, left };

/// What the scheduler asks of the launch that it runs.
class BlockSource {
 public:
  virtual ~BlockSource() = default;
  /// Has the scheduler begin or go on with a block; false after the last.
  virtual bool next_block() = 0;
  /// All threads that have not left wait: makes at least one of them ready.
  virtual void resolve_stall() = 0;
  /// The same where others wait for memory to change. False if none of them can go on.
  virtual bool end_meetings() { return false; }
  /// All threads that have not left wait, some of them for memory to change, which each has looked
  /// at since this was called last.
  virtual void spin() = 0;
};

/// The threads of a block, as they stand.
struct BlockThreads {
  unsigned started = 0;
  unsigned finished = 0;
  uint3 next_index{};  ///< threadIdx of the next thread that starts
  ReadyQueue ready, spinning;
  std::array<Fiber*, max_block_threads> fiber_of{};
  std::array<ThreadState, max_block_threads> states{};
};

/// The threads of the block that runs.
class ThreadScheduler {
 public:
  ThreadScheduler();

  /// Runs `thread` for every CUDA thread of every block that `source` gives.
  void run(const KernelCall& thread, dim3 block, BlockSource& source);

  /// Ends the launch that runs, wherever its threads stand. On one of these.
  [[noreturn]] void abandon();

  /// The running thread waits until `make_ready` names it.
  void wait(ThreadState why);
  void make_ready(unsigned thread);
  /// The running thread lets others run; it goes on once all of them wait.
  void yield();

  /// Begins the launch's next block.
  void start_block();
  /// Goes on with a block where it was left, in place of the one that runs.
  void go_on_with(const BlockThreads& block) { block_threads_ = block; }
  const BlockThreads& block_threads() const { return block_threads_; }

  /// Linear index of the running thread in its block.
  unsigned current() const { return current_; }
  unsigned threads() const { return threads_; }
  /// Those of the block that have returned.
  unsigned left() const { return block_threads_.finished; }
  ThreadState state(unsigned thread) const { return block_threads_.states[thread]; }
  uint3 index_of(unsigned thread) const;
  const FiberPool& fibers() const { return fibers_; }

 private:
  void work();
  void leave_for(unsigned thread);
  void run_next_thread();

  FiberPool fibers_;
  const KernelCall* thread_ = nullptr;
  BlockSource* source_ = nullptr;
  dim3 block_;
  unsigned threads_ = 0;
  unsigned current_ = 0;
  BlockThreads block_threads_;
  std::size_t turns_ = 0;  ///< of threads that spin, until the source is asked
  bool is_abandoned_ = false;
};

}  // namespace simgpu
