#include "comm/tcp/handshake.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <sstream>
#include <thread>

#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "comm/token.hpp"
#include "lockstep/comm/errors.hpp"

namespace lockstep::comm::tcp {
namespace {

constexpr std::size_t token_room = 128;
// Connections that may be silent at a time beside those of all ranks. Ranks speak at once, but
// their first packets can be lost: what has been silent longest goes first, so that strangers who
// only connect hold up nobody.
constexpr std::size_t max_strangers = 256;
constexpr auto handshake_timeout = std::chrono::seconds(5);
// The other side's system acknowledges a handshake at once, unless it has forgotten the connection.
constexpr auto acknowledgement_timeout = std::chrono::milliseconds(1500);
constexpr std::byte welcome{'w'};  // the answer to a rank that is accepted

/// The first bytes of every connection.
struct HandshakeMessage {
  std::uint32_t magic = 0x4C4B5332;  // "LKS2"
  Purpose purpose = Purpose::rendezvous;
  std::int32_t rank = 0;
  std::int32_t size = 0;
  std::array<char, token_room> token{};
};

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

/// A connection that has not said who it is.
struct Pending {
  Socket socket;
  Deadline deadline;
  std::array<std::byte, sizeof(HandshakeMessage)> bytes{};
  std::size_t received = 0;

  enum class State { waiting, complete, gone };
  State read() {
    const ssize_t count =
        ::recv(socket.descriptor(), bytes.data() + received, bytes.size() - received, 0);
    if (count <= 0)
      return count < 0 && (errno == EAGAIN || errno == EINTR) ? State::waiting : State::gone;
    received += static_cast<std::size_t>(count);
    return received == bytes.size() ? State::complete : State::waiting;
  }
};

// The rank that a complete handshake proves, or none.
std::optional<int> verified_rank(const Pending& pending, const HandshakeMessage& own) {
  HandshakeMessage theirs;
  std::memcpy(&theirs, pending.bytes.data(), sizeof theirs);
  const bool known =
      equal_in_constant_time({theirs.token.data(), token_room}, {own.token.data(), token_room});
  if (!known || theirs.magic != own.magic || theirs.purpose != own.purpose ||
      theirs.size != own.size || theirs.rank < 0 || theirs.rank >= own.size)
    return std::nullopt;
  return theirs.rank;
}

// True if the listening side's system has kept the handshake, for whoever accepts it. False: its
// queue was full, so it dropped the packet that would have completed the connection, and what came
// after it. It may take that up later, or answer with a reset after some time; and what this side
// sends again comes ever more seldom, so to wait for either can take half a minute.
bool was_kept(const Socket& socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  // One within the host is not TCP, and never lost.
  return getsockopt(socket.descriptor(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0 ||
         info.tcpi_bytes_acked >= sizeof(HandshakeMessage);
}

enum class Answer { none, accepted, refused, lost };

Answer end_of(const Socket& socket) { return was_kept(socket) ? Answer::refused : Answer::lost; }

Answer answer_on(const Socket& socket) {
  std::byte byte{};
  const ssize_t count = ::recv(socket.descriptor(), &byte, 1, 0);
  if (count > 0 && byte == welcome) return Answer::accepted;
  if (count >= 0) return Answer::refused;
  if (errno == EAGAIN || errno == EINTR) return Answer::none;
  return end_of(socket);
}

// Once it is closed, the other side does not take what is left of it for a rank.
void reset(const Socket& socket) {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  setsockopt(socket.descriptor(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

// @return false if the connection was lost on its way in.
bool is_accepted(const Socket& socket, const HandshakeMessage& own, std::string_view listener,
                 Deadline deadline, Check check) {
  const bool is_sent = send_all(socket, std::as_bytes(std::span(&own, 1)), deadline);
  const Deadline acknowledged = Clock::now() + acknowledgement_timeout;
  while (true) {
    check();
    const Answer answer = is_sent ? answer_on(socket) : end_of(socket);
    LOCKSTEP_CHECK(answer != Answer::refused, comm::PeerFailure, listener,
                   " closed its connection; it may hold another job token, or have failed");
    if (answer != Answer::none) return answer == Answer::accepted;
    LOCKSTEP_CHECK(Clock::now() < deadline, Timeout, listener,
                   " did not accept this rank in time (LOCKSTEP_JOIN_TIMEOUT sets another): it may "
                   "be stopped, or wait for other ranks");
    if (Clock::now() > acknowledged && !was_kept(socket)) {
      reset(socket);
      return false;
    }
    pollfd entry{socket.descriptor(), POLLIN, 0};
    poll(&entry, 1, 50);
  }
}

/// The listening side of a handshake with each rank from `first` on.
class RankAcceptor {
 public:
  RankAcceptor(const Socket& listener, const Handshake& self, int first)
      : listener_(listener), own_(message_of(self)), first_(first) {
    ranks_.resize(static_cast<std::size_t>(self.size));
    missing_ = self.size - first;
  }

  std::vector<Socket> run(Deadline deadline, Check check) {
    while (missing_ > 0) {
      check();
      if (Clock::now() >= deadline) throw Timeout(describe_missing());
      wait();
      admit();
      for (Pending& pending : pending_) handle(pending);
      std::erase_if(pending_, [](const Pending& pending) { return !pending.socket; });
      drop_the_longest_silent();
    }
    return std::move(ranks_);
  }

 private:
  void wait() {
    std::vector<pollfd> entries{{listener_.descriptor(), POLLIN, 0}};
    for (const Pending& pending : pending_)
      entries.push_back({pending.socket.descriptor(), POLLIN, 0});
    poll(entries.data(), entries.size(), 50);
  }
  void admit() {
    for (std::size_t taken = 0; taken < max_strangers; ++taken) {
      auto socket = accept_from(listener_);
      if (!socket) return;
      pending_.push_back({std::move(*socket), Clock::now() + handshake_timeout});
    }
  }
  void drop_the_longest_silent() {
    const std::size_t limit = ranks_.size() + max_strangers;
    if (pending_.size() <= limit) return;
    pending_.erase(pending_.begin(), pending_.end() - static_cast<std::ptrdiff_t>(limit));
  }
  void handle(Pending& pending) {
    const auto state = pending.read();
    if (state == Pending::State::waiting && Clock::now() < pending.deadline) return;
    Socket socket = std::move(pending.socket);
    if (state != Pending::State::complete) return;
    const auto rank = verified_rank(pending, own_);
    if (!rank || *rank < first_) return;
    Socket& place = ranks_[static_cast<std::size_t>(*rank)];
    if (place && !has_hung_up(place)) return;
    if (!place) --missing_;
    // Whoever uses the connection sees if it is gone by now.
    (void)::send(socket.descriptor(), &welcome, sizeof welcome, MSG_NOSIGNAL);
    place = std::move(socket);
  }
  std::string describe_missing() const {
    std::ostringstream text;
    text << "these ranks did not connect in time:";
    for (std::size_t rank = static_cast<std::size_t>(first_); rank < ranks_.size(); ++rank)
      if (!ranks_[rank]) text << ' ' << rank;
    text << " (of " << ranks_.size() << "); are they running, with the same job token? "
         << "LOCKSTEP_JOIN_TIMEOUT sets another limit, in seconds";
    return text.str();
  }

  const Socket& listener_;
  HandshakeMessage own_;
  int first_, missing_;
  std::vector<Socket> ranks_;
  std::vector<Pending> pending_;
};

}  // namespace

void present(const Socket& socket, const Handshake& self, Deadline deadline) {
  const HandshakeMessage message = message_of(self);
  LOCKSTEP_CHECK(send_all(socket, std::as_bytes(std::span(&message, 1)), deadline),
                 comm::PeerFailure, "the peer closed the connection at once");
}

Socket join(FunctionRef<Socket()> connect, std::string_view listener, const Handshake& self,
            Deadline deadline, Check check) {
  const HandshakeMessage message = message_of(self);
  while (true) {
    Socket socket = connect();
    if (is_accepted(socket, message, listener, deadline, check)) return socket;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

std::vector<Socket> accept_ranks(const Socket& listener, const Handshake& self, int first,
                                 Deadline deadline, Check check) {
  make_room_for_connections(self.size);
  return RankAcceptor(listener, self, first).run(deadline, check);
}

}  // namespace lockstep::comm::tcp
