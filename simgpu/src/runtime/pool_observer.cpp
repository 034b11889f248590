#include "runtime/pool_observer.hpp"

#include <mutex>
#include <string>
#include <utility>

#include "base/leaks.hpp"
#include "engine/host.hpp"
#include "engine/host_threads.hpp"
#include "engine/operation.hpp"
#include "lockstep/memory/block_observer.hpp"
#include "memory/address_space.hpp"
#include "memory/contents.hpp"
#include "memory/names.hpp"
#include "memory/pool_blocks.hpp"
#include "memory/registered_memory.hpp"
#include "profile/profile.hpp"

namespace simgpu {
namespace {

void enqueue_on(lockstep::StreamRef stream, Operation operation) {
  const OnDevice guard(stream.device.index);
  // A stream that is gone takes no operation: the block then ends when it is given out again.
  static_cast<void>(enqueue(static_cast<cudaStream_t>(stream.handle), std::move(operation)));
}

/// An operation that changes hands with all bytes of a block. It writes, for whoever still uses the
/// block without an order to it: races are found there.
Operation change_of_hands(const char* name, const CallSite& site, const PoolBlock& block,
                          std::function<void()> change) {
  return {.name = name,
          .site = site,
          .accesses = {{block.block.data, block.capacity, true}},
          .changes_hands = true,
          .run = [change = std::move(change)] {
            change();
            return true;
          }};
}

/// What the program says of memory takes effect in stream order, and touches nothing.
Operation statement(const char* name, std::function<void()> effect) {
  return {.name = name, .run = [effect = std::move(effect)] {
            effect();
            return true;
          }};
}

/// While one lives, the calling thread works for the simulation: its locks are no order of the
/// program's, and its time none that the program takes.
struct Simulating {
  OwnLocks own_locks;
  profile::HostClockPause paused;
};

class PoolObserver final : public lockstep::BlockObserver {
 public:
  std::size_t guard_bytes(lockstep::Device device) const noexcept override {
    return device.is_cpu() ? 0 : guard;
  }

  void allocated(const lockstep::MemoryBlock& memory, std::size_t bytes,
                 lockstep::StreamRef stream) noexcept override {
    if (!is_tracked(memory.data)) return;
    const Simulating simulating;
    PoolBlock block{.capacity = memory.size, .number = next_call_number()};
    block.block = {.data = static_cast<std::byte*>(memory.data),
                   .bytes = bytes,
                   .device = slot_of(memory.data),
                   .is_pool_block = true,
                   .created = CallSite::here()};
    Names::instance().forget(memory.data, memory.size);
    // The host fills pinned memory unseen, in no stream's order.
    if (slot_of(memory.data) == Layout::pinned_slot) return;
    PoolBlocks::instance().allocated(block);
    object_created("pool block", memory.data, std::to_string(bytes) + " bytes");
    const auto fill = [block] { PoolBlocks::instance().allocated_on_device(block); };
    enqueue_on(stream,
               change_of_hands("hand-out of a pool block", block.block.created, block, fill));
  }

  void freed(const lockstep::MemoryBlock& memory, lockstep::StreamRef stream) noexcept override {
    if (!is_tracked(memory.data)) return;
    const Simulating simulating;
    const CallSite site = CallSite::here();
    RegisteredMemory::instance().check(memory.data, memory.size, "given back to its pool");
    const auto block =
        PoolBlocks::instance().freed(memory.data, site, Names::instance().of(memory.data));
    if (!block) return;
    object_destroyed("pool block", memory.data);
    const auto close = [data = memory.data, site] {
      PoolBlocks::instance().freed_on_device(data, site);
    };
    enqueue_on(stream, change_of_hands("return of a pool block", site, *block, close));
  }

  void named(const void* data, std::size_t bytes, std::string_view name) noexcept override {
    if (!is_tracked(data)) return;
    const profile::HostClockPause paused;
    name_memory(data, bytes, std::string(name));
  }

  void completed(const void* data, std::size_t bytes,
                 lockstep::StreamRef stream) noexcept override {
    if (!is_on_device(data)) return;
    const Simulating simulating;
    enqueue_on(stream, statement("complete", [=, site = CallSite::here()] {
                 Contents::instance().complete(data, bytes, site);
               }));
  }

  void discarded(const void* data, std::size_t bytes,
                 lockstep::StreamRef stream) noexcept override {
    if (!is_on_device(data)) return;
    const Simulating simulating;
    enqueue_on(stream, statement("discard", [=, site = CallSite::here()] {
                 Contents::instance().discard(data, bytes, site);
               }));
  }

 private:
  static bool is_on_device(const void* data) {
    return is_tracked(data) && slot_of(data) != Layout::pinned_slot;
  }

  static constexpr std::size_t guard = 256;
};

}  // namespace

void observe_pools() {
  static std::once_flag once;
  std::call_once(once, [] {
    static PoolObserver& observer = *new PoolObserver();
    if (!lockstep::block_observer()) lockstep::set_block_observer(&observer);
  });
}

namespace {

/// From the program's start: a pool looks for its observer before the first call of its upstream.
[[maybe_unused]] const bool observed = (observe_pools(), true);

}  // namespace

}  // namespace simgpu
