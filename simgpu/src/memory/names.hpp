#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

/// @file
/// What the program calls its memory.

namespace simgpu {

/// Names of ranges. A newer name takes the place of those that it overlaps. Thread-safe.
class Names {
 public:
  /// The one instance, never destroyed.
  static Names& instance();

  void set(const void* data, std::size_t bytes, std::string name);
  /// The name of the range that holds the address; empty if there is none.
  std::string of(const void* address) const;
  /// The memory holds something else from now on.
  void forget(const void* data, std::size_t bytes);

 private:
  struct Named {
    std::uintptr_t end;
    std::string name;
  };
  void erase(std::uintptr_t begin, std::uintptr_t end);

  mutable std::mutex mutex_;
  std::map<std::uintptr_t, Named> names_;
};

}  // namespace simgpu
