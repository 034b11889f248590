#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "nccl/segment.hpp"
#include "nccl/socket.hpp"

/// @file
/// Takes connections of those who know a token.

namespace simgpu::nccl {

/// Reads one greeting of fixed size from each new connection. Strangers, half-open connections and
/// those that take too long are dropped and hold up nobody.
class Doorkeeper {
 public:
  /// @param greeting bytes of a greeting; it begins with the token
  Doorkeeper(Descriptor listener, const Token& token, std::size_t greeting)
      : listener_(std::move(listener)), token_(token), greeting_(greeting) {}

  /// A connection whose greeting is complete and right.
  struct Guest {
    Descriptor socket;
    std::vector<std::byte> greeting;
  };
  /// Waits for the next one, `milliseconds` at most.
  std::optional<Guest> next(int milliseconds);

 private:
  using Clock = std::chrono::steady_clock;
  struct Pending {
    Guest guest;
    std::size_t received;
    Clock::time_point deadline;
  };
  void accept_all();
  bool advance(Pending& pending);

  Descriptor listener_;
  Token token_;
  std::size_t greeting_;
  std::vector<Pending> pending_;
};

}  // namespace simgpu::nccl
