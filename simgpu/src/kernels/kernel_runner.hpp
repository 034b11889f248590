#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "engine/operation.hpp"
#include "kernels/block_barrier.hpp"
#include "kernels/block_order.hpp"
#include "kernels/device_watch.hpp"
#include "kernels/dynamic_memory.hpp"
#include "kernels/kernel_launch.hpp"
#include "kernels/left_block.hpp"
#include "kernels/modules.hpp"
#include "kernels/shared_watch.hpp"
#include "kernels/spin_watch.hpp"
#include "kernels/warp_collectives.hpp"
#include "kernels/warp_requests.hpp"

/// @file
/// The one place where kernels run.

namespace simgpu {

/// Runs launches, one at a time, on the thread that used it first.
class KernelRunner final : private BlockSource {
 public:
  KernelRunner();
  /// Runs a launch to its end, until it is stopped, or what LOCKSTEP_SIM_EXECUTE leaves of it.
  /// @return what it touched; nothing with LOCKSTEP_SIM_WATCH=0.
  std::vector<Access> run(const KernelLaunch& launch);
  /// Of the launch that ran last, for the profile.
  profile::Fields measured() const;

  /// Ends the launch that runs, as an access that the device cannot make does. On one of its
  /// threads, which is left as it stands: its stack must own nothing.
  [[noreturn]] void stop(cudaError_t error);
  /// Why the last launch was stopped; cudaSuccess if it was not.
  cudaError_t error() const { return error_; }

  ThreadScheduler& scheduler() { return scheduler_; }
  WarpCollectives& collectives() { return collectives_; }
  DynamicMemory& dynamic_memory() { return dynamic_; }
  Ballot block_barrier(bool predicate, const void* place);

  /// An access of the running thread to memory of any kind, from a compiler hook.
  SIMGPU_ALWAYS_INLINE void access(const MemoryAccess& access) {
    if (access.address - Layout::begin < Layout::bytes) {
      if (requests_.are_noted()) [[unlikely]]
        requests_.note_global(scheduler_.current(), access);
      device_watch_.access(access);
    } else {
      access_host_side(access);
    }
  }
  /// True of the running thread's own variables, and of the launch's arguments.
  bool is_own(std::uintptr_t address) const {
    return scheduler_.fibers().is_stack(address) || is_argument(address, AccessKind::read);
  }
  /// The running thread looks at memory that others may change, before it reads it: if it does so
  /// again and again, others run now. Watched or not.
  void poll(const Poll& poll);
  /// The running thread makes a fence that the whole device sees.
  void fence() { device_watch_.races().fence(); }
  void warp_barrier(unsigned mask);
  /// "byte 12 of the block's dynamic shared memory".
  std::string describe_shared(std::uintptr_t address) const;

 private:
  bool next_block() override;
  void resolve_stall() override;
  bool end_meetings() override { return collectives_.end_meetings(); }
  void spin() override;
  std::uint64_t resident_blocks() const;
  bool is_endless();
  [[noreturn]] void end_spinning();
  void leave_block();
  void go_on();
  void prepare_watch(const KernelLaunch& launch);
  void begin_epochs();
  SharedTime now();
  bool is_argument(std::uintptr_t address, AccessKind kind) const;
  void access_host_side(const MemoryAccess& access);
  /// @return false if the device cannot make the access.
  bool watch_host_side(const MemoryAccess& access);
  void access_shared(SharedWatch& watch, const MemoryAccess& access);
  bool access_elsewhere(std::uintptr_t address, unsigned bytes, AccessKind kind);

  ThreadScheduler scheduler_;
  BlockBarrier barrier_{scheduler_};
  WarpCollectives collectives_{scheduler_};
  DynamicMemory dynamic_;
  LaunchTime time_;
  DeviceWatch device_watch_{time_, scheduler_};
  SharedWatch static_watch_;
  SharedWatch dynamic_watch_;
  WarpRequests requests_;
  Module module_;
  const KernelLaunch* launch_ = nullptr;
  std::optional<BlockOrder> order_;
  std::uint64_t blocks_run_ = 0;
  std::uint32_t shared_start_ = 0;  ///< the epoch with which the block that runs began
  SpinWatch spins_;
  std::deque<LeftBlock> left_;  ///< blocks that wait for others
  std::uint64_t changes_seen_ = 0;
  std::uint64_t rounds_in_vain_ = 0;  ///< of blocks whose threads wait
  std::optional<std::chrono::steady_clock::time_point> waits_for_host_since_;
  cudaError_t error_ = cudaSuccess;
};

/// The one of the process; made on first use, by the thread that runs all launches.
KernelRunner& kernel_runner();

}  // namespace simgpu
