#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "comm/bootstrap/bootstraps.hpp"
#include "comm/tcp/handshake.hpp"
#include "comm/tcp/local_socket.hpp"
#include "comm/tcp/socket.hpp"
#include "lockstep/comm/errors.hpp"

namespace lockstep::comm {
namespace {

constexpr const char* closed_words =
    " closed its connection; it may hold another job token, or have failed";
// What ranks tell each other before there is a communicator is short: addresses, names, settings.
constexpr std::uint64_t max_message = std::uint64_t{256} << 20;  // of all ranks together
constexpr std::size_t receive_step = 256 << 10;

/// What all ranks gave, as one message: to send each rank each part by itself would be as many
/// packets as there are pairs of ranks.
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

/// @throws CorruptData unless it is a message of so many parts.
std::vector<std::string> parts_of(std::string_view message, int count) {
  std::vector<std::string> parts;
  for (int i = 0; i < count; ++i) {
    std::uint64_t length = 0;
    LOCKSTEP_CHECK(message.size() >= sizeof length, CorruptData, "bootstrap: rank 0 sent what ", i,
                   " ranks gave, of ", count);
    std::memcpy(&length, message.data(), sizeof length);
    message.remove_prefix(sizeof length);
    LOCKSTEP_CHECK(length <= message.size(), CorruptData, "bootstrap: rank 0 announced ", length,
                   " bytes of rank ", i, " in a message that has ", message.size(), " more");
    parts.emplace_back(message.substr(0, length));
    message.remove_prefix(length);
  }
  return parts;
}

/// Rank 0's socket. A name that is loopback here, as hosts often call themselves in /etc/hosts, is
/// this host's address elsewhere: then all interfaces.
tcp::Socket listen_for_ranks(const TcpJob& job, tcp::Deadline deadline) {
  if (job.is_local) return tcp::listen_locally(job.port);
  tcp::Socket listener = tcp::listen_on({job.address, job.port}, deadline);
  const std::string bound = tcp::local_endpoint(listener).address;
  if (tcp::is_loopback(job.address) || !tcp::is_loopback(bound)) return listener;
  listener.close();
  return tcp::listen_on({bound == "::1" ? "::" : "0.0.0.0", job.port});
}

/// A star of connections to rank 0, which collects and hands out.
class TcpBootstrap final : public Bootstrap {
 public:
  explicit TcpBootstrap(const TcpJob& job);

  int rank() const override { return job_.rank; }
  int size() const override { return job_.size; }
  std::string_view kind() const override { return "tcp"; }
  std::string address() const override { return interface_; }
  void check_peers() const override;
  // There is no launcher to call: the others see the connection close, and end by themselves.
  void end_job(int exit_code) noexcept override { std::_Exit(exit_code); }

 private:
  std::vector<std::string> exchange(std::string_view bytes) override;
  std::string own_interface() const;
  tcp::Deadline deadline() const { return tcp::Clock::now() + job_.timeout; }
  void send(const tcp::Socket& to, std::string_view bytes, int peer) const;
  std::string receive(const tcp::Socket& from, int peer, std::uint64_t most) const;

  TcpJob job_;
  std::string interface_;
  std::vector<tcp::Socket> sockets_;  // on rank 0 by rank; elsewhere only the one to rank 0
};

TcpBootstrap::TcpBootstrap(const TcpJob& job) : Bootstrap(job.timeout), job_(job) {
  const tcp::Handshake self{tcp::Purpose::rendezvous, job.token, job.rank, job.size};
  const tcp::Endpoint rendezvous{job.address, job.port};
  if (job.rank == 0) {
    const tcp::Socket listener = listen_for_ranks(job, deadline());
    sockets_ = tcp::accept_ranks(listener, self, 1, deadline());
  } else {
    const tcp::Deadline limit = deadline();
    const auto connect = [&] {
      return job.is_local ? tcp::connect_locally(job.port, limit)
                          : tcp::connect_to(rendezvous, limit);
    };
    sockets_.push_back(tcp::join(connect, "bootstrap: rank 0", self, limit));
  }
  discover_peers();
  interface_ = own_interface();
}

// Where the connections of the rendezvous arrive, but for those between ranks of one host.
std::string TcpBootstrap::own_interface() const {
  if (job_.is_local) return tcp::loopback_address();
  std::string address;
  for (const tcp::Socket& socket : sockets_) {
    if (!socket) continue;
    address = tcp::local_endpoint(socket).address;
    if (!tcp::is_loopback(address)) return address;
  }
  return is_one_host() ? address : tcp::reachable_address();
}

void TcpBootstrap::send(const tcp::Socket& to, std::string_view bytes, int peer) const {
  LOCKSTEP_CHECK(bytes.size() <= max_message, InvalidArgument, "bootstrap: ", bytes.size(),
                 " bytes; ranks may exchange ", max_message,
                 " in all before they have a "
                 "communicator");
  const std::uint64_t length = bytes.size();
  const bool is_sent = tcp::send_all(to, std::as_bytes(std::span(&length, 1)), deadline()) &&
                       tcp::send_all(to, std::as_bytes(std::span(bytes)), deadline());
  LOCKSTEP_CHECK(is_sent, comm::PeerFailure, "bootstrap: rank ", peer, closed_words);
}

// Room grows with what comes, and not with what a peer announces.
std::string TcpBootstrap::receive(const tcp::Socket& from, int peer, std::uint64_t most) const {
  std::uint64_t length = 0;
  const auto receive_part = [&](std::span<std::byte> room) {
    LOCKSTEP_CHECK(tcp::receive_all(from, room, deadline()), comm::PeerFailure, "bootstrap: rank ",
                   peer, closed_words);
  };
  receive_part(std::as_writable_bytes(std::span(&length, 1)));
  LOCKSTEP_CHECK(length <= most, CorruptData, "bootstrap: rank ", peer, " announced ", length,
                 " bytes; at most ", most, " are allowed");
  std::string bytes;
  while (bytes.size() < length) {
    const std::size_t before = bytes.size();
    bytes.resize(std::min<std::size_t>(length, before + receive_step));
    receive_part(std::as_writable_bytes(std::span(bytes)).subspan(before));
  }
  return bytes;
}

std::vector<std::string> TcpBootstrap::exchange(std::string_view bytes) {
  if (job_.rank != 0) {
    send(sockets_[0], bytes, 0);
    return parts_of(receive(sockets_[0], 0, max_message), job_.size);
  }
  std::vector<std::string> all(static_cast<std::size_t>(job_.size));
  all[0] = bytes;
  std::uint64_t left = max_message - std::min<std::uint64_t>(max_message, length_of(bytes));
  for (std::size_t peer = 1; peer < all.size(); ++peer) {
    const auto rank = static_cast<int>(peer);
    const std::uint64_t most = left - std::min(left, length_of({}));
    all[peer] = receive(sockets_[peer], rank, most);
    left -= length_of(all[peer]);
  }
  const std::string message = joined(all);
  for (std::size_t peer = 1; peer < all.size(); ++peer)
    send(sockets_[peer], message, static_cast<int>(peer));
  return all;
}

// Nobody ends the connections of the rendezvous but by ending.
void TcpBootstrap::check_peers() const {
  for (std::size_t i = 0; i < sockets_.size(); ++i)
    LOCKSTEP_CHECK(!sockets_[i] || !tcp::has_hung_up(sockets_[i]), comm::PeerFailure,
                   "bootstrap: rank ", job_.rank == 0 ? i : 0, closed_words);
}

}  // namespace

std::unique_ptr<Bootstrap> make_tcp_bootstrap(const TcpJob& job) {
  return std::make_unique<TcpBootstrap>(job);
}

}  // namespace lockstep::comm
