#include "memory/names.hpp"

#include <iterator>
#include <utility>

namespace simgpu {
namespace {

std::uintptr_t number(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

}  // namespace

Names& Names::instance() {
  static Names& names = *new Names();
  return names;
}

void Names::set(const void* data, std::size_t bytes, std::string name) {
  if (bytes == 0) return;
  const std::lock_guard lock(mutex_);
  erase(number(data), number(data) + bytes);
  names_.emplace(number(data), Named{number(data) + bytes, std::move(name)});
}

std::string Names::of(const void* address) const {
  const std::lock_guard lock(mutex_);
  const auto after = names_.upper_bound(number(address));
  if (after == names_.begin()) return {};
  const Named& named = std::prev(after)->second;
  return number(address) < named.end ? named.name : std::string();
}

void Names::forget(const void* data, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (!names_.empty()) erase(number(data), number(data) + bytes);
}

void Names::erase(std::uintptr_t begin, std::uintptr_t end) {
  auto at = names_.lower_bound(begin);
  if (at != names_.begin() && std::prev(at)->second.end > begin) --at;
  while (at != names_.end() && at->first < end) at = names_.erase(at);
}

}  // namespace simgpu
