#include "comm/tcp/handshake_message.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "comm/token.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::comm::tcp {
namespace {

constexpr std::byte accepted_byte{'w'}, refused_byte{'n'};

void answer_with(const Socket& socket, std::byte answer) noexcept {
  (void)::send(socket.descriptor(), &answer, sizeof answer, MSG_NOSIGNAL);
}

}  // namespace

HandshakeMessage message_of(const Handshake& self) {
  LOCKSTEP_CHECK(self.token.size() <= token_room, InvalidArgument, "the job token has ",
                 self.token.size(), " bytes; at most ", token_room, " are allowed");
  HandshakeMessage message;
  message.purpose = self.purpose;
  message.rank = self.rank;
  message.size = self.size;
  std::ranges::copy(self.token, message.token.begin());
  return message;
}

Pending::State Pending::read() {
  const ssize_t count =
      ::recv(socket.descriptor(), bytes.data() + received, bytes.size() - received, 0);
  if (count <= 0)
    return count < 0 && (errno == EAGAIN || errno == EINTR) ? State::waiting : State::gone;
  received += static_cast<std::size_t>(count);
  return received == bytes.size() ? State::complete : State::waiting;
}

std::optional<int> Pending::verified_rank(const HandshakeMessage& own) const {
  HandshakeMessage theirs;
  std::memcpy(&theirs, bytes.data(), sizeof theirs);
  const bool known =
      equal_in_constant_time({theirs.token.data(), token_room}, {own.token.data(), token_room});
  if (!known || theirs.magic != own.magic || theirs.purpose != own.purpose ||
      theirs.size != own.size || theirs.rank < 0 || theirs.rank >= own.size)
    return std::nullopt;
  return theirs.rank;
}

void welcome(const Socket& socket) noexcept { answer_with(socket, accepted_byte); }
void turn_away(const Socket& socket) noexcept { answer_with(socket, refused_byte); }

bool was_kept(const Socket& socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  // One within the host is not TCP, and never lost.
  return getsockopt(socket.descriptor(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0 ||
         info.tcpi_bytes_acked >= sizeof(HandshakeMessage);
}

Answer end_of(const Socket& socket) { return was_kept(socket) ? Answer::closed : Answer::lost; }

Answer answer_on(const Socket& socket) {
  std::byte byte{};
  const ssize_t count = ::recv(socket.descriptor(), &byte, 1, 0);
  if (count > 0) return byte == accepted_byte ? Answer::accepted : Answer::refused;
  if (count == 0) return Answer::closed;
  if (errno == EAGAIN || errno == EINTR) return Answer::none;
  return end_of(socket);
}

void reset_at_close(const Socket& socket) noexcept {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  setsockopt(socket.descriptor(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

}  // namespace lockstep::comm::tcp
