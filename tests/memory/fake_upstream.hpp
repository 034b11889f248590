#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>

/// @file
/// Memory that is not there: addresses nobody may touch, so that a pool can be tested at any size.

namespace lockstep::testing {

inline constexpr std::size_t KiB = 1024, MiB = 1024 * KiB;

/// What a test sees of, and says to, its upstream.
struct UpstreamLog {
  std::map<std::uintptr_t, std::size_t> held;
  std::size_t held_bytes = 0;
  std::size_t capacity = ~std::size_t{0};
  int allocations = 0;
  bool throws = false;
  std::uintptr_t next = std::uintptr_t{1} << 40;
};

/// Hands out fresh addresses until the capacity is reached.
struct FakeUpstream {
  UpstreamLog* log;
  void* allocate(std::size_t bytes) {
    if (log->throws) throw std::runtime_error("the upstream was told to throw");
    if (log->held_bytes + bytes > log->capacity) return nullptr;
    const std::uintptr_t address = log->next;
    log->next += bytes + 4096;  // segments never touch
    log->held.emplace(address, bytes);
    log->held_bytes += bytes;
    ++log->allocations;
    return reinterpret_cast<void*>(address);
  }
  void deallocate(void* data, std::size_t bytes) noexcept {
    const auto found = log->held.find(reinterpret_cast<std::uintptr_t>(data));
    if (found == log->held.end() || found->second != bytes) std::terminate();
    log->held.erase(found);
    log->held_bytes -= bytes;
  }
};

}  // namespace lockstep::testing
