#include "lockstep_run/message.hpp"

#include <sstream>

#include <lockstep/core/error.hpp>

namespace run {
namespace {

constexpr std::size_t max_line = 1 << 20, max_text = 1 << 26;

}  // namespace

std::string encode(const Message& message) {
  std::string bytes = std::to_string(static_cast<int>(message.type));
  for (const std::int64_t number : message.numbers) bytes += ' ' + std::to_string(number);
  return bytes + " : " + std::to_string(message.text.size()) + '\n' + message.text;
}

void MessageReader::look_for_handshake() {
  for (std::size_t end; !handshake_.empty() && (end = pending_.find('\n')) != std::string::npos;) {
    if (pending_.substr(0, end) == handshake_) handshake_.clear();
    pending_.erase(0, end + 1);
  }
}

std::optional<Message> MessageReader::next() {
  look_for_handshake();
  const std::size_t end = pending_.find('\n');
  LOCKSTEP_CHECK(end != std::string::npos || pending_.size() <= max_line, lockstep::CorruptData,
                 "a line without an end");
  if (end == std::string::npos || !handshake_.empty()) return std::nullopt;
  std::istringstream line(pending_.substr(0, end));
  Message message;
  int type = 0;
  line >> type;
  message.type = static_cast<MessageType>(type);
  for (std::int64_t number; line >> number;) message.numbers.push_back(number);
  line.clear();
  char colon = 0;
  std::size_t length = 0;
  LOCKSTEP_CHECK(line >> colon >> length && colon == ':' && length <= max_text,
                 lockstep::CorruptData, "no message: '", pending_.substr(0, end), "'");
  if (pending_.size() < end + 1 + length) return std::nullopt;
  message.text = pending_.substr(end + 1, length);
  pending_.erase(0, end + 1 + length);
  return message;
}

}  // namespace run
