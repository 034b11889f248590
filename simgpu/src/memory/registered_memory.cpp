#include "memory/registered_memory.hpp"

#include <optional>
#include <utility>

#include "base/report.hpp"
#include "memory/address_space.hpp"

namespace simgpu {

RegisteredMemory& RegisteredMemory::instance() {
  static auto& all = *new RegisteredMemory;
  return all;
}

std::uint64_t RegisteredMemory::add(const void* data, std::size_t bytes, std::string owner,
                                    const CallSite& site) {
  const std::lock_guard lock(mutex_);
  ranges_.emplace(++last_,
                  Range{static_cast<const std::byte*>(data), bytes, std::move(owner), site});
  return last_;
}

void RegisteredMemory::remove(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  ranges_.erase(number);
}

void RegisteredMemory::check(const void* data, std::size_t bytes, const char* what) const {
  const auto* const begin = static_cast<const std::byte*>(data);
  std::optional<Range> found;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [number, range] : ranges_)
      if (range.data < begin + bytes && begin < range.data + range.bytes) found = range;
  }
  if (!found) return;
  report(Finding::registration, "  " + describe_address(found->data) + " is " + what +
                                    " while it is registered with the " + found->owner + "\n  at " +
                                    describe(CallSite::here()) + "\n  registered by " +
                                    describe(found->site));
}

}  // namespace simgpu
