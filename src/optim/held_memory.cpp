#include "optim/held_memory.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>

namespace lockstep::optim {
namespace {

/// All that are alive. Nobody locks it while there are none.
struct Registry {
  std::atomic<int> count = 0;
  std::mutex mutex;
  std::vector<const HeldMemory*> all;
};

Registry& registry() {
  static Registry* const instance = new Registry;  // outlives whatever ends with the program
  return *instance;
}

}  // namespace

HeldMemory::HeldMemory(const std::vector<Tensor>& tensors) {
  for (const Tensor& tensor : tensors) {
    const auto* const first = static_cast<const std::byte*>(tensor.data_ptr());
    if (tensor.numel() > 0) ranges_.emplace_back(first, first + tensor.nbytes());
  }
  const std::lock_guard lock(registry().mutex);
  registry().all.push_back(this);
  ++registry().count;
}

HeldMemory::~HeldMemory() {
  const std::lock_guard lock(registry().mutex);
  std::erase(registry().all, this);
  --registry().count;
}

bool HeldMemory::has(const Tensor& tensor) {
  if (registry().count == 0 || tensor.numel() == 0) return false;
  const auto* const first = static_cast<const std::byte*>(tensor.data_ptr());
  const std::byte* const last = first + tensor.nbytes();
  const std::lock_guard lock(registry().mutex);
  return std::ranges::any_of(registry().all, [&](const HeldMemory* each) {
    return std::ranges::any_of(each->ranges_, [&](const Range& range) {
      return first < range.second && range.first < last;
    });
  });
}

}  // namespace lockstep::optim
