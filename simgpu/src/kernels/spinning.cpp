#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/options.hpp"
#include "kernels/builtins.hpp"
#include "kernels/function_attributes.hpp"
#include "kernels/kernel_findings.hpp"
#include "kernels/kernel_runner.hpp"
#include "kernels/watching.hpp"
#include "memory/address_space.hpp"
#include "memory/fast_path.hpp"

/// @file
/// Threads that wait for memory to change let others run: those of their block, then those of
/// others, as many as the device holds at once.

namespace simgpu {

void KernelRunner::poll(const Poll& poll) {
  const auto* const data = reinterpret_cast<const void*>(poll.address);
  if (is_tracked(data) ? !is_writable(data, poll.bytes)
                       : !static_watch_.holds(poll.address) && !dynamic_.holds(poll.address))
    return;
  const DeviceTraffic& traffic = device_watch_.traffic();
  if (spins_.poll(scheduler_.current(), time_.block_start, poll, traffic.read + traffic.written))
    scheduler_.yield();
}

/// How many blocks can wait for each other.
std::uint64_t KernelRunner::resident_blocks() const {
  // Blocks share memory, of which only the watch knows what is whose.
  return options().watch_kernels ? blocks_at_once(launch_->shape) : 1;
}

void KernelRunner::spin() {
  const bool can_begin = order_->left() > 0 && left_.size() + 1 < resident_blocks();
  if (can_begin || spins_.changes() != changes_seen_)
    rounds_in_vain_ = 0;
  else
    ++rounds_in_vain_;
  changes_seen_ = spins_.changes();
  spins_.set_turns_in_vain(rounds_in_vain_ / (left_.size() + 1));
  if (!can_begin && is_endless()) end_spinning();
  if (!can_begin && left_.empty()) return;
  leave_block();
  if (can_begin)
    next_block();
  else
    go_on();
}

/// True if every block had its turns, and nothing has changed. The host may come to change pinned
/// memory: it gets some seconds.
bool KernelRunner::is_endless() {
  constexpr std::uint64_t polls = std::uint64_t{1} << 22;
  constexpr std::chrono::seconds timeout{10};
  if (rounds_in_vain_ < 4 * (left_.size() + 1)) return false;
  if (slot_of(reinterpret_cast<const void*>(spins_.last().address)) != Layout::pinned_slot)
    return spins_.in_vain() > polls;
  const auto now = std::chrono::steady_clock::now();
  if (!waits_for_host_since_) waits_for_host_since_ = now;
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return now - *waits_for_host_since_ > timeout;
}

void KernelRunner::end_spinning() {
  found_endless_wait(spins_.last_thread(), spins_.last(), order_->left(), left_.size() + 1);
  stop(cudaErrorLaunchTimeout);
}

void KernelRunner::leave_block() {
  static_watch_.end_block();
  dynamic_watch_.end_block();
  const std::byte* const dynamic = dynamic_.data();
  left_.push_back({block_index,
                   shared_start_,
                   scheduler_.block_threads(),
                   barrier_.arrivals(),
                   collectives_.block(),
                   device_watch_.races().leave_block(),
                   static_watch_.save(),
                   {dynamic, dynamic + launch_->shape.shared_bytes}});
  barrier_.forget();
}

/// The block that was left first, as after a barrier of its own.
void KernelRunner::go_on() {
  const LeftBlock block = std::move(left_.front());
  left_.pop_front();
  block_index = block.index;
  shared_start_ = block.shared_start;
  scheduler_.go_on_with(block.threads);
  barrier_.go_on_with(block.barrier);
  collectives_.go_on_with(block.collectives);
  static_watch_.restore(block.static_shared, block.shared_start);
  std::copy(block.dynamic_shared.begin(), block.dynamic_shared.end(), dynamic_.data());
  time_.block_start = ++time_.epoch;
  device_watch_.races().go_on_with(block.index, block.fences);
}

}  // namespace simgpu
