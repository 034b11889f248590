#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/operation.hpp"
#include "kernels/block_barrier.hpp"
#include "kernels/block_order.hpp"
#include "kernels/device_watch.hpp"
#include "kernels/dynamic_memory.hpp"
#include "kernels/kernel_launch.hpp"
#include "kernels/modules.hpp"
#include "kernels/shared_watch.hpp"
#include "kernels/warp_collectives.hpp"

/// @file
/// The one place where kernels run.

namespace simgpu {

/// Runs launches, one at a time, on the thread that used it first.
class KernelRunner final : private BlockSource {
 public:
  /// Runs a launch to its end, or what LOCKSTEP_SIM_EXECUTE leaves of it. @return what it touched;
  /// nothing with LOCKSTEP_SIM_WATCH=0.
  std::vector<Access> run(const KernelLaunch& launch);
  /// Of the launch that ran last, for the profile.
  profile::Fields measured() const;

  ThreadScheduler& scheduler() { return scheduler_; }
  WarpCollectives& collectives() { return collectives_; }
  DynamicMemory& dynamic_memory() { return dynamic_; }
  Ballot block_barrier(bool predicate);

  /// An access of the running thread to memory of any kind, from a compiler hook.
  void access(std::uintptr_t address, unsigned bytes, SharedAccess kind) {
    if (address - Layout::begin >= Layout::bytes) return access_host_side(address, bytes, kind);
    if (kind != SharedAccess::write) device_watch_.read(address, bytes);
    if (kind != SharedAccess::read) device_watch_.write(address, bytes);
  }
  /// "byte 12 of the block's dynamic shared memory".
  std::string describe_shared(std::uintptr_t address) const;

 private:
  bool next_block() override;
  void resolve_stall() override;
  void prepare_watch(const KernelLaunch& launch);
  void start_epoch();
  SharedTime now();
  bool is_argument(std::uintptr_t address, SharedAccess kind) const;
  void access_host_side(std::uintptr_t address, unsigned bytes, SharedAccess kind);
  void access_elsewhere(std::uintptr_t address, unsigned bytes, SharedAccess kind);

  ThreadScheduler scheduler_;
  BlockBarrier barrier_{scheduler_};
  WarpCollectives collectives_{scheduler_};
  DynamicMemory dynamic_;
  DeviceWatch device_watch_;
  SharedWatch static_watch_;
  SharedWatch dynamic_watch_;
  Module module_;
  const KernelLaunch* launch_ = nullptr;
  std::optional<BlockOrder> order_;
  std::uint64_t blocks_run_ = 0;
  std::uint32_t epoch_ = 1;
  std::uint32_t block_start_ = 1;
};

/// The one of the process; made on first use, by the thread that runs all launches.
KernelRunner& kernel_runner();

}  // namespace simgpu
