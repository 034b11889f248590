#include "autograd/held_memory.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

#include "lockstep/autograd/grad_mode.hpp"

namespace lockstep::autograd {
namespace {

/// All that are alive. Nobody locks it while none holds anything.
struct Registry {
  std::atomic<int> count = 0;  // of those that hold something
  std::mutex mutex;
  std::vector<HeldMemory*> all;
};

Registry& registry() {
  static Registry* const instance = new Registry;  // outlives whatever ends with the program
  return *instance;
}

}  // namespace

HeldMemory::HeldMemory(const std::vector<Tensor>& tensors) {
  const NoGradGuard no_recording;
  for (const Tensor& tensor : tensors)
    if (tensor.numel() > 0)
      held_.push_back(
          {.range = range_of(tensor), .tensor = tensor, .aside = tensor.detach().clone()});
  const std::lock_guard lock(registry().mutex);
  registry().all.push_back(this);
  count();
}

HeldMemory::~HeldMemory() {
  const std::lock_guard lock(registry().mutex);
  std::erase(registry().all, this);
  count();
}

/// To be called under the lock, whenever something changes.
void HeldMemory::count() {
  registry().count = static_cast<int>(std::ranges::count_if(
      registry().all, [](const HeldMemory* each) { return !each->held_.empty(); }));
}

HeldMemory::Range HeldMemory::range_of(const Tensor& tensor) {
  const auto* const first = static_cast<const std::byte*>(tensor.data_ptr());
  return {first, first + tensor.nbytes()};
}

void HeldMemory::put_back(const std::vector<Held>& all) {
  const NoGradGuard no_recording;
  for (const Held& each : all) Tensor(each.tensor).copy_(each.aside);
}

void HeldMemory::bring_back() {
  std::vector<Held> all;
  {
    const std::lock_guard lock(registry().mutex);
    all.swap(held_);
    count();
  }
  put_back(all);
}

bool HeldMemory::holds_any() const {
  const std::lock_guard lock(registry().mutex);
  return !held_.empty();
}

bool HeldMemory::has(const Tensor& tensor) {
  if (registry().count == 0 || tensor.numel() == 0) return false;
  const Range range = range_of(tensor);
  const std::lock_guard lock(registry().mutex);
  return std::ranges::any_of(registry().all, [&](const HeldMemory* each) {
    return std::ranges::any_of(each->held_, [&](const Held& held) { return held.overlaps(range); });
  });
}

void HeldMemory::bring_back_into(const Tensor& tensor) {
  if (registry().count == 0 || tensor.numel() == 0) return;
  const Range range = range_of(tensor);
  std::vector<Held> all;
  {
    const std::lock_guard lock(registry().mutex);
    for (HeldMemory* const each : registry().all) {
      const auto rest = std::ranges::stable_partition(
          each->held_, [&](const Held& held) { return !held.overlaps(range); });
      all.insert(all.end(), rest.begin(), rest.end());
      each->held_.erase(rest.begin(), rest.end());
    }
    count();
  }
  put_back(all);
}

}  // namespace lockstep::autograd
