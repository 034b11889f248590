#include "comm/control/control_message.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <poll.h>
#include <sys/socket.h>

#include "comm/shortened.hpp"

namespace lockstep::comm::control {
namespace {

struct Header {
  std::uint32_t magic = 0x4C4B5343;  // "LKSC"
  MessageType type = MessageType::heartbeat;
  std::int32_t exit_code = 0;
  std::uint32_t length = 0;
};

std::string bytes_of(const Message& message) {
  const std::string text = shortened(message.text, max_text);
  const Header header{.type = message.type,
                      .exit_code = message.exit_code,
                      .length = static_cast<std::uint32_t>(text.size())};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  bytes += text;
  return bytes;
}

bool has_room(const tcp::Socket& socket) {
  pollfd entry{socket.descriptor(), POLLOUT, 0};
  return poll(&entry, 1, 0) > 0;
}

}  // namespace

Sent send_message(const tcp::Socket& socket, const Message& message) noexcept {
  try {
    const std::string bytes = bytes_of(message);
    if (message.type == MessageType::heartbeat && !has_room(socket)) return Sent::yes;
    const auto deadline = tcp::Clock::now() + std::chrono::seconds(1);
    return tcp::send_all(socket, std::as_bytes(std::span(bytes)), deadline) ? Sent::yes
                                                                            : Sent::gone;
  } catch (...) {
    shutdown(socket.descriptor(), SHUT_RDWR);
    return Sent::no_room;
  }
}

bool MessageReader::read(const tcp::Socket& socket) {
  std::array<char, 4096> chunk;
  // Bounded: a peer that floods us is read again at the next turn, after the others.
  while (pending_.size() <= sizeof(Header) + max_text) {
    const ssize_t count = ::recv(socket.descriptor(), chunk.data(), chunk.size(), 0);
    if (count > 0) {
      pending_.append(chunk.data(), static_cast<std::size_t>(count));
      continue;
    }
    return count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
  }
  return !malformed_;
}

std::optional<Message> MessageReader::next() {
  Header header;
  if (malformed_ || pending_.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, pending_.data(), sizeof header);
  if (header.magic != Header{}.magic || header.length > max_text) {
    malformed_ = true;
    return std::nullopt;
  }
  if (pending_.size() < sizeof header + header.length) return std::nullopt;
  Message message{header.type, header.exit_code, pending_.substr(sizeof header, header.length)};
  pending_.erase(0, sizeof header + header.length);
  return message;
}

}  // namespace lockstep::comm::control
