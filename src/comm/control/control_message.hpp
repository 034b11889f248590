#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "comm/tcp/socket.hpp"

namespace lockstep::comm::control {

/// What the control channel says.
enum class MessageType : std::uint32_t {
  bye = 1,           ///< the sender leaves the job in good order
  failed = 2,        ///< a rank met an error
  lost = 3,          ///< a rank vanished, or is silent
  heartbeat = 4,     ///< the sender still runs; the code: seconds that its oldest operation has run
  stalled = 5,       ///< a rank waited for others until its time was over, or their calls differ
  news = 6,          ///< of a GroupRegistry
  signatures = 7,    ///< a batch of a SignatureComparison
  stop_request = 8,  ///< of a StopAgreement: a rank was told to stop
  stop_question = 9,   ///< rank 0 asks which step was the last
  stop_answer = 10,    ///< this one
  stop_decision = 11,  ///< the step after which all stop
  stall_report = 12,   ///< rank 0: ranks have waited for long; all say what they are at
};

/// One message: a fixed header, then text of bounded length.
struct Message {
  MessageType type = MessageType::heartbeat;
  std::int32_t exit_code = 0;
  std::string text = {};
};

/// Longest text; longer ones are cut when sent and refused when received.
inline constexpr std::size_t max_text = 8192;

/// What became of a message.
enum class Sent {
  yes,
  gone,     ///< the peer has closed its end
  no_room,  ///< the peer has read nothing for a second
};

/// Sends a message, giving up after a second. A connection that has no room for it ends, for part
/// of it may be on its way, and nothing can follow that. Only a heartbeat may be left out: a peer
/// that does not read misses none.
Sent send_message(const tcp::Socket& socket, const Message& message) noexcept;

/// Puts messages together from what a non-blocking socket delivers.
class MessageReader {
 public:
  /// Reads what is there. False when the peer is gone or broke the protocol.
  bool read(const tcp::Socket& socket);
  /// Takes the next complete message, if any.
  std::optional<Message> next();

 private:
  std::string pending_;
  bool malformed_ = false;
};

}  // namespace lockstep::comm::control
