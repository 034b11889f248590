#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// @file
/// What the supervisor and its agents, one on each host, tell each other over two pipes.

namespace run {

enum class MessageType : int {
  // To an agent.
  listen = 1,   ///< text: an address
  start = 2,    ///< numbers: first rank, ranks, longest stop in s; text: a LaunchPlan
  signal = 3,   ///< numbers: the signal for all ranks
  kill = 4,     ///< all ranks
  report = 10,  ///< says what all ranks are at, and has them say it
  // From an agent, with `alive` in both directions.
  alive = 5,      ///< numbers: the Progress of each rank, four; every second
  listening = 6,  ///< numbers: port, whether at an address of the host; text: why not
  output = 7,     ///< numbers: rank, stream (1 or 2); text: whole lines
  ended = 8,      ///< numbers: rank, status as of waitpid, Progress
  refused = 9,    ///< text: why the program cannot be started; no rank runs here then
};

struct Message {
  MessageType type = MessageType::alive;
  std::vector<std::int64_t> numbers = {};
  std::string text = {};
};

/// A line of type, numbers and length, and the text behind it.
std::string encode(const Message& message);

/// Puts messages together from the bytes of a pipe.
class MessageReader {
 public:
  /// @param handshake a line behind which the messages begin: what a login shell prints before is
  /// skipped. Empty: at once.
  explicit MessageReader(std::string handshake = {}) : handshake_(std::move(handshake)) {}

  void add(std::string_view bytes) { pending_ += bytes; }
  /// Takes the next message, if it is complete. @throws CorruptData
  std::optional<Message> next();
  /// Whether the handshake has come.
  bool has_handshake() const { return handshake_.empty(); }

 private:
  void look_for_handshake();

  std::string handshake_, pending_;
};

/// How often either side says `alive`.
inline constexpr std::chrono::milliseconds alive_interval(1000);

/// What an agent says first.
inline constexpr const char* agent_handshake = "lockstep_run agent 3";

}  // namespace run
