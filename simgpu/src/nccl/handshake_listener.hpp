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

/// Reads one handshake of fixed size from each new connection. Strangers, half-open connections and
/// those that take too long are dropped and hold up nobody.
class HandshakeListener {
 public:
  /// @param handshake bytes of a handshake; it begins with the token
  HandshakeListener(Descriptor listener, const Token& token, std::size_t handshake)
      : listener_(std::move(listener)), token_(token), handshake_(handshake) {}

  /// A connection whose handshake is complete and right.
  struct Connection {
    Descriptor socket;
    std::vector<std::byte> handshake;
  };
  /// Waits for the next one, `milliseconds` at most.
  std::optional<Connection> next(int milliseconds);

 private:
  using Clock = std::chrono::steady_clock;
  struct Pending {
    Connection connection;
    std::size_t received;
    Clock::time_point deadline;
  };
  void accept_all();
  bool advance(Pending& pending);

  Descriptor listener_;
  Token token_;
  std::size_t handshake_;
  std::vector<Pending> pending_;
};

}  // namespace simgpu::nccl
