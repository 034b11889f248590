#include "kernels/kernel_runner.hpp"
#include "kernels/watching.hpp"
#include "simgpu/kernel_language.hpp"

/// @file
/// The functions that kernels call.

namespace simgpu {
namespace {

/// PTX's rule for the lane that a shuffle reads; its own where that lies outside the segment.
unsigned source_lane(Shuffle mode, int operand, int width) {
  const int own = static_cast<int>(own_lane());
  const int segment = own & ~(width - 1);
  const int last = segment + width - 1;
  int source = own;
  switch (mode) {
    case Shuffle::index: source = segment + (operand & (width - 1)); break;
    case Shuffle::up: source = own - operand < segment ? own : own - operand; break;
    case Shuffle::down: source = own + operand > last ? own : own + operand; break;
    case Shuffle::exclusive_or: source = (own ^ operand) > last ? own : own ^ operand; break;
  }
  return static_cast<unsigned>(source) % lanes_per_warp;
}

}  // namespace

void* dynamic_shared_memory() { return kernel_runner().dynamic_memory().data(); }

Ballot block_barrier(bool predicate) {
  return kernel_runner().block_barrier(predicate, __builtin_return_address(0));
}

std::uint64_t warp_shuffle(unsigned mask, std::uint64_t word, Shuffle mode, int operand,
                           int width) {
  const bool may_lack_source = mode == Shuffle::up || mode == Shuffle::down;
  return kernel_runner().collectives().join(
      mask, {WarpOperation::shuffle, word, source_lane(mode, operand, width), may_lack_source});
}

unsigned warp_ballot(unsigned mask, bool predicate) {
  return static_cast<unsigned>(
      kernel_runner().collectives().join(mask, {WarpOperation::ballot, predicate ? 1u : 0u, 0}));
}

void warp_barrier(unsigned mask) { kernel_runner().warp_barrier(mask); }

void device_fence() {
  if (KernelRunner* const by = watching) by->fence();
}

void trap() { kernel_runner().stop(cudaErrorIllegalInstruction); }

unsigned active_lanes() { return kernel_runner().collectives().meet(__builtin_return_address(0)); }

unsigned own_lane() { return kernel_runner().scheduler().current() % lanes_per_warp; }

void atomic_access(void* address, std::size_t bytes, AtomicScope scope, const void* place) {
  if (KernelRunner* const by = polled)
    by->poll({reinterpret_cast<std::uintptr_t>(address), static_cast<unsigned>(bytes), place});
  if (KernelRunner* const by = watching)
    by->access({.address = reinterpret_cast<std::uintptr_t>(address),
                .bytes = static_cast<unsigned>(bytes),
                .kind = AccessKind::atomic,
                .is_of_block = scope == AtomicScope::block,
                .place = place});
}

}  // namespace simgpu
