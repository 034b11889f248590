#pragma once

#include <mutex>
#include <utility>
#include <vector>

#include "lockstep/comm/work.hpp"
#include "lockstep/runtime/stream.hpp"
#include "lockstep/tensor/storage.hpp"
#include "runtime/step_recording.hpp"

namespace lockstep::parallel {

/// Memory of collectives that nobody waits for. Freed by later collectives, once theirs are done:
/// neither a destructor blocks nor is memory freed on another thread than the caller's.
class HeldMemory {
 public:
  using Storages = std::vector<IntrusivePtr<Storage>>;

  /// That of this process, which is never destroyed: the pools may be gone by then.
  static HeldMemory& instance() {
    static auto* const all = new HeldMemory;
    return *all;
  }

  /// Keeps memory until `work` has ended.
  void keep(const comm::Work& work, const Storages& memory) {
    const std::lock_guard lock(mutex_);
    kept_.emplace_back(work, memory);
  }

  /// Frees what is not in use any more.
  void sweep() {
    if (StepRecording::current()) return;  // a captured step asks no events
    const std::lock_guard lock(mutex_);
    std::erase_if(kept_, [](const auto& entry) {
      if (!entry.first.is_completed()) return false;
      order_release(entry.first, entry.second);
      return true;
    });
  }

  /// The memory goes once `work`, which has ended, is done with it, however it ended.
  static void order_release(const comm::Work& work, const Storages& memory) {
    work.release_memory();
    for (const auto& storage : memory) storage->record_stream(current_stream(storage->device()));
  }

 private:
  std::mutex mutex_;
  std::vector<std::pair<comm::Work, Storages>> kept_;
};

}  // namespace lockstep::parallel
