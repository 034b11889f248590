#pragma once

#include <cstddef>
#include <functional>
#include <utility>

#include "memory/upstream.hpp"

/// @file
/// An upstream that fails when a test says so.

namespace lockstep {

/// Passes on to another upstream what is not to be refused. Not for several threads, apart from
/// what a pool does.
template <Upstream U>
class FaultInjectingUpstream {
 public:
  /// @param refuses asked for each allocation, with the bytes; true: it gets null.
  FaultInjectingUpstream(U upstream, std::function<bool(std::size_t)> refuses)
      : upstream_(std::move(upstream)), refuses_(std::move(refuses)) {}

  void* allocate(std::size_t bytes) {
    return refuses_(bytes) ? nullptr : upstream_.allocate(bytes);
  }
  void deallocate(void* data, std::size_t bytes) noexcept { upstream_.deallocate(data, bytes); }

  std::size_t page_bytes() const requires GrowableUpstream<U> { return upstream_.page_bytes(); }
  bool extend(void* end, std::size_t bytes) requires GrowableUpstream<U> {
    return !refuses_(bytes) && upstream_.extend(end, bytes);
  }

 private:
  U upstream_;
  std::function<bool(std::size_t)> refuses_;
};

}  // namespace lockstep
