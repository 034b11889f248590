#include "comm/bootstrap/exchange_message.hpp"

#include <cstring>

#include "lockstep/core/error.hpp"

namespace lockstep::comm {

std::string joined(const std::vector<std::string>& parts) {
  std::string message;
  for (const std::string& part : parts) {
    const std::uint64_t length = part.size();
    message.append(reinterpret_cast<const char*>(&length), sizeof length);
    message += part;
  }
  return message;
}

std::uint64_t length_of(std::string_view part) { return sizeof(std::uint64_t) + part.size(); }

std::vector<std::string> parts_of(std::string_view message, int count, int from) {
  std::vector<std::string> parts;
  for (int i = 0; i < count; ++i) {
    std::uint64_t length = 0;
    LOCKSTEP_CHECK(message.size() >= sizeof length, CorruptData, "bootstrap: rank ", from,
                   " sent what ", i, " ranks gave, of ", count);
    std::memcpy(&length, message.data(), sizeof length);
    message.remove_prefix(sizeof length);
    LOCKSTEP_CHECK(length <= message.size(), CorruptData, "bootstrap: rank ", from, " announced ",
                   length, " bytes of part ", i, " in a message that has ", message.size(),
                   " more");
    parts.emplace_back(message.substr(0, length));
    message.remove_prefix(length);
  }
  return parts;
}

std::string failure_message(std::string_view text) {
  text = text.substr(0, max_failure_text);
  const std::uint64_t header = failure_flag | text.size();
  std::string message(reinterpret_cast<const char*>(&header), sizeof header);
  message += text;
  return message;
}

void require_room_for(std::uint64_t bytes) {
  LOCKSTEP_CHECK(bytes <= max_exchange, InvalidArgument, "bootstrap: ", bytes,
                 " bytes; ranks may exchange ", max_exchange,
                 " in all before they have a communicator");
}

}  // namespace lockstep::comm
