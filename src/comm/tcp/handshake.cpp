#include "comm/tcp/handshake.hpp"

#include <algorithm>
#include <numeric>
#include <sstream>
#include <thread>

#include <poll.h>
#include <sys/socket.h>

#include "comm/tcp/handshake_message.hpp"
#include "lockstep/comm/errors.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::comm::tcp {
namespace {

// Connections that may be silent at a time beside those of all ranks. Ranks speak at once, but
// their first packets can be lost: what has been silent longest goes first, so that strangers who
// only connect hold up nobody.
constexpr std::size_t max_strangers = 256;

// @return the answer; none if there was none in time.
Answer await_answer(const Socket& socket, const HandshakeMessage& own, std::string_view listener,
                    Deadline deadline, Check check) {
  const bool is_sent = send_all(socket, std::as_bytes(std::span(&own, 1)), deadline);
  const Deadline acknowledged = Clock::now() + acknowledgement_timeout;
  while (true) {
    check();
    const Answer answer = is_sent ? answer_on(socket) : end_of(socket);
    LOCKSTEP_CHECK(
        answer != Answer::refused, comm::PeerFailure, listener,
        " turned this rank away; it may hold another job token, be of a job with another "
        "number of ranks, or have a rank of this number already");
    if (answer != Answer::none || Clock::now() >= deadline) return answer;
    if (Clock::now() > acknowledged && !was_kept(socket)) {
      reset_at_close(socket);
      return Answer::lost;
    }
    pollfd entry{socket.descriptor(), POLLIN, 0};
    poll(&entry, 1, 50);
  }
}

/// The listening side of a handshake with each of some ranks.
class RankAcceptor {
 public:
  RankAcceptor(const Socket& listener, const Handshake& self, std::span<const int> ranks)
      : listener_(listener), own_(message_of(self)), missing_(ranks.size()) {
    ranks_.resize(static_cast<std::size_t>(self.size));
    is_due_.resize(ranks_.size());
    for (const int rank : ranks) is_due_[static_cast<std::size_t>(rank)] = true;
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
    const auto rank = pending.verified_rank(own_);
    if (!rank || !is_due_[static_cast<std::size_t>(*rank)]) return turn_away(socket);
    Socket& place = ranks_[static_cast<std::size_t>(*rank)];
    if (place && !has_hung_up(place)) return turn_away(socket);
    if (!place) --missing_;
    welcome(socket);
    place = std::move(socket);
  }
  std::string describe_missing() const {
    lockstep::detail::TextStream text;
    text << "these ranks did not connect in time:";
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
      if (is_due_[rank] && !ranks_[rank]) text << ' ' << rank;
    text << " (of " << ranks_.size() << "); are they running, with the same job token? "
         << "LOCKSTEP_JOIN_TIMEOUT sets another limit, in seconds";
    return text.str();
  }

  const Socket& listener_;
  HandshakeMessage own_;
  std::size_t missing_;
  std::vector<Socket> ranks_;
  std::vector<char> is_due_;  // by rank
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
  Backoff pause;
  bool was_closed = false;
  do {
    Socket socket = connect();
    const Answer answer = await_answer(socket, message, listener, deadline, check);
    if (answer == Answer::accepted) return socket;
    was_closed |= answer == Answer::closed;
    pause.sleep(deadline);
  } while (Clock::now() < deadline);
  LOCKSTEP_THROW(
      Timeout, listener, " did not accept this rank in time (LOCKSTEP_JOIN_TIMEOUT sets another): ",
      was_closed ? "connections were closed without a word, as by a proxy, a tunnel or a "
                   "service whose server is not there"
                 : "it may be stopped, or wait for other ranks");
}

std::vector<Socket> accept_ranks(const Socket& listener, const Handshake& self,
                                 std::span<const int> ranks, Deadline deadline, Check check) {
  make_room_for_connections(self.size);
  return RankAcceptor(listener, self, ranks).run(deadline, check);
}

std::vector<Socket> accept_ranks(const Socket& listener, const Handshake& self, int first,
                                 Deadline deadline, Check check) {
  std::vector<int> ranks(static_cast<std::size_t>(self.size - first));
  std::iota(ranks.begin(), ranks.end(), first);
  return accept_ranks(listener, self, ranks, deadline, check);
}

}  // namespace lockstep::comm::tcp
