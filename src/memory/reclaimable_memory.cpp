#include "memory/reclaimable_memory.hpp"

#include <list>
#include <shared_mutex>
#include <utility>

namespace lockstep {
namespace {

struct Holders {
  std::shared_mutex mutex;  // shared by calls
  std::list<const ReclaimableMemory*> all;
};

// Never destroyed: memory is asked for until the very end.
Holders& holders() {
  static Holders& holders = *new Holders;
  return holders;
}

}  // namespace

ReclaimableMemory::ReclaimableMemory(Device device, std::function<void()> give_back)
    : device_(device), give_back_(std::move(give_back)) {
  const std::unique_lock lock(holders().mutex);
  holders().all.push_back(this);
}

ReclaimableMemory::~ReclaimableMemory() {
  const std::unique_lock lock(holders().mutex);
  holders().all.remove(this);
}

bool ReclaimableMemory::reclaim(Device device) {
  const std::shared_lock lock(holders().mutex);
  bool is_any = false;
  for (const ReclaimableMemory* const each : holders().all) {
    if (each->device_ != device) continue;
    each->give_back_();
    is_any = true;
  }
  return is_any;
}

}  // namespace lockstep
