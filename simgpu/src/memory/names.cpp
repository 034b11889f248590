#include "memory/names.hpp"

#include <iterator>
#include <utility>

#include "memory/layout.hpp"

namespace simgpu {

Names& Names::instance() {
  static Names& names = *new Names();
  return names;
}

void Names::set(const void* data, std::size_t bytes, std::string name) {
  if (bytes == 0) return;
  const std::lock_guard lock(mutex_);
  erase(number_of(data), number_of(data) + bytes);
  names_.emplace(number_of(data), Named{number_of(data) + bytes, std::move(name)});
}

std::string Names::of(const void* address) const {
  const std::lock_guard lock(mutex_);
  const auto after = names_.upper_bound(number_of(address));
  if (after == names_.begin()) return {};
  const Named& named = std::prev(after)->second;
  return number_of(address) < named.end ? named.name : std::string();
}

void Names::forget(const void* data, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (!names_.empty()) erase(number_of(data), number_of(data) + bytes);
}

void Names::erase(std::uintptr_t begin, std::uintptr_t end) {
  auto at = names_.lower_bound(begin);
  if (at != names_.begin() && std::prev(at)->second.end > begin) --at;
  while (at != names_.end() && at->first < end) at = names_.erase(at);
}

}  // namespace simgpu
