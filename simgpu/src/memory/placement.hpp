#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "memory/layout.hpp"

/// @file
/// Which addresses of a slot are in use.

namespace simgpu {

/// Places ranges of whole pages in one slot of the layout. Goes round the slot, so that an address
/// that became free is used again as late as can be. Not for several threads.
class Placement {
 public:
  explicit Placement(int slot)
      : begin_(Layout::begin + static_cast<std::uintptr_t>(slot) * Layout::slot_bytes),
        end_(begin_ + Layout::slot_bytes),
        cursor_(begin_) {}

  /// A free range, now in use; nothing if there is none so long.
  std::optional<std::uintptr_t> take(std::size_t bytes);
  /// The range that was taken at `begin` may be used again.
  void give_back(std::uintptr_t begin) { in_use_.erase(begin); }

 private:
  std::optional<std::uintptr_t> search(std::uintptr_t from, std::size_t bytes) const;

  std::uintptr_t begin_, end_, cursor_;
  std::map<std::uintptr_t, std::uintptr_t> in_use_;
};

}  // namespace simgpu
