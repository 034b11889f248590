#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "memory/protection.hpp"

/// @file
/// For machines without protection keys: pages of the device that nobody may touch until a thread
/// of the device's side does. It faults, the fault handler opens a window of pages, and whoever
/// opened it closes it when its work is done. While a window is open, the host's accesses to it go
/// unseen.

namespace simgpu {

/// Which pages belong to the device, and which of them are open. Thread-safe; asked in the handler
/// of a fault, whose thread cannot hold the lock: nothing below it touches such pages.
class SwitchedPages {
 public:
  /// The one instance, never destroyed.
  static SwitchedPages& instance();

  /// Marks whole, committed pages, and closes them unless they are everyone's.
  void set_owner(void* pages, std::size_t bytes, Owner owner);
  /// The pages are gone: nothing more is done with them.
  void forget(void* pages, std::size_t bytes);

  /// Opens the window around an address to all threads, on behalf of `opener`, who closes it. Pages
  /// that have become everyone's since the fault are open.
  /// @return false if there is no such page.
  bool open(const void* address, const void* opener);
  /// Closes the windows that `opener` opened. Whoever still works there faults and opens them
  /// again.
  void close(const void* opener);

 private:
  struct Window {
    std::uintptr_t end = 0;
    const void* opener = nullptr;
  };
  struct Range {
    std::uintptr_t end = 0;
    bool is_everyones = false;
  };
  using Ranges = std::map<std::uintptr_t, Range>;  // by their begin, without overlaps

  Ranges::iterator first_behind(std::uintptr_t address);
  void take_out(std::uintptr_t begin, std::uintptr_t end);
  void protect(std::uintptr_t begin, std::uintptr_t end);
  std::uintptr_t bytes_at(std::uintptr_t begin) const;

  std::mutex mutex_;
  Ranges ranges_;
  std::multimap<std::uintptr_t, Window> windows_;
};

}  // namespace simgpu
