#include "memory/placement.hpp"

#include <iterator>

namespace simgpu {

std::optional<std::uintptr_t> Placement::take(std::size_t bytes) {
  if (bytes > Layout::slot_bytes) return std::nullopt;
  std::optional<std::uintptr_t> found = search(cursor_, bytes);
  if (!found) found = search(begin_, bytes);
  if (!found) return std::nullopt;
  in_use_.emplace(*found, *found + bytes);
  cursor_ = *found + bytes;
  return found;
}

std::optional<std::uintptr_t> Placement::search(std::uintptr_t from, std::size_t bytes) const {
  auto next = in_use_.upper_bound(from);
  if (next != in_use_.begin()) from = std::max(from, std::prev(next)->second);
  for (; from + bytes <= end_; ++next) {
    if (next == in_use_.end() || next->first - from >= bytes) return from;
    from = next->second;
  }
  return std::nullopt;
}

}  // namespace simgpu
