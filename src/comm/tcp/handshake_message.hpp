#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "comm/tcp/handshake.hpp"

/// @file
/// What both sides of a handshake send, for whoever waits for several at a time.

namespace lockstep::comm::tcp {

inline constexpr std::size_t token_room = 128;
/// So long a connection may say nothing before it is dropped.
inline constexpr auto handshake_timeout = std::chrono::seconds(5);
/// The other side's system acknowledges a handshake at once, unless it has forgotten the
/// connection.
inline constexpr auto acknowledgement_timeout = std::chrono::milliseconds(1500);

/// The first bytes of every connection.
struct HandshakeMessage {
  std::uint32_t magic = 0x4C4B5332;  // "LKS2"
  Purpose purpose = Purpose::rendezvous;
  std::int32_t rank = 0;
  std::int32_t size = 0;
  std::array<char, token_room> token{};
};

/// @throws InvalidArgument for a long token
HandshakeMessage message_of(const Handshake& self);

/// A connection that has not said who it is.
struct Pending {
  Socket socket;
  Deadline deadline;
  std::array<std::byte, sizeof(HandshakeMessage)> bytes{};
  std::size_t received = 0;

  enum class State { waiting, complete, gone };
  State read();
  /// The rank that a complete handshake proves, or none.
  std::optional<int> verified_rank(const HandshakeMessage& own) const;
};

/// Tells a rank that it is accepted. Whoever uses the connection sees if it is gone by now.
void welcome(const Socket& socket) noexcept;
/// Tells whoever presented itself that it is turned away, before the connection is closed.
void turn_away(const Socket& socket) noexcept;

/// What has come back on a connection on which a rank presented itself.
enum class Answer {
  none,
  accepted,
  refused,  ///< the other side turns this rank away
  closed,   ///< the connection ended without a word: the other side, or who stands for it, is gone
  lost,     ///< the other side's system never gave the connection to anybody
};
Answer answer_on(const Socket& socket);
/// The answer, closed or lost, on a connection that has ended.
Answer end_of(const Socket& socket);
/// True if the other side's system has kept the handshake, for whoever accepts it. False: its queue
/// was full, so it dropped the packet that would have completed the connection, and what came after
/// it. It may take that up later, or answer with a reset after some time; and what this side sends
/// again comes ever more seldom, so to wait for either can take half a minute.
bool was_kept(const Socket& socket);
/// Once the socket is closed, the other side does not take what is left of it for a rank.
void reset_at_close(const Socket& socket) noexcept;

}  // namespace lockstep::comm::tcp
