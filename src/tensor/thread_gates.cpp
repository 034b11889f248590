#include "tensor/thread_gates.hpp"

#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

struct Entry {
  const void* gate;
  std::thread::id thread;
  std::function<void()> wait;
};

std::mutex mutex;
std::vector<Entry> entries;

}  // namespace

void enter_gate(const void* gate, std::function<void()> wait) {
  const std::lock_guard lock(mutex);
  std::erase_if(entries, [gate](const Entry& entry) { return entry.gate == gate; });
  entries.push_back({gate, std::this_thread::get_id(), std::move(wait)});
}

void leave_gate(const void* gate) noexcept {
  const std::lock_guard lock(mutex);
  std::erase_if(entries, [gate](const Entry& entry) { return entry.gate == gate; });
}

void wait_at_gates() {
  std::vector<std::function<void()>> waits;  // they leave
  {
    const std::lock_guard lock(mutex);
    for (const Entry& entry : entries)
      if (entry.thread == std::this_thread::get_id()) waits.push_back(entry.wait);
  }
  for (const auto& wait : waits) wait();
}

}  // namespace lockstep
