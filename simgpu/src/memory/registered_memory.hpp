#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "base/call_site.hpp"

/// @file
/// Memory that a library was told of, and may use until it is told that it goes.

namespace simgpu {

/// Ranges that communicators have registered (ncclCommRegister). Thread-safe.
class RegisteredMemory {
 public:
  /// The one instance, never destroyed.
  static RegisteredMemory& instance();

  /// Registers a range. @param owner for reports. @return its number, for `remove`
  std::uint64_t add(const void* data, std::size_t bytes, std::string owner, const CallSite& site);
  void remove(std::uint64_t number);
  /// Reports it if any of the memory, which goes to others, is registered.
  /// @param what happens to it: "freed"
  void check(const void* data, std::size_t bytes, const char* what) const;

 private:
  struct Range {
    const std::byte* data;
    std::size_t bytes;
    std::string owner;
    CallSite site;
  };

  mutable std::mutex mutex_;
  std::map<std::uint64_t, Range> ranges_;
  std::uint64_t last_ = 0;
};

}  // namespace simgpu
