#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/bootstrap/bootstraps.hpp"
#include "comm/bootstrap/exchange_message.hpp"
#include "comm/bootstrap/exchange_tree.hpp"
#include "comm/tcp/handshake.hpp"
#include "comm/tcp/local_socket.hpp"
#include "comm/tcp/socket.hpp"
#include "comm/token.hpp"
#include "lockstep/comm/errors.hpp"

namespace lockstep::comm {
namespace {

constexpr const char* closed_words =
    " closed its connection; it may hold another job token, or have failed";
// Of fewer, or of one host, rank 0 speaks with each: a tree would take longer to connect than it
// saves.
constexpr int least_ranks_for_a_tree = 64;

/// The socket that lockstep_run leaves to rank 0, so that nobody takes the port meanwhile: the
/// descriptor in LOCKSTEP_LISTENER, if it listens at the job's port. A program between the two may
/// have closed it: then the port is free.
std::optional<tcp::Socket> inherited_listener(int port) {
  const char* text = std::getenv("LOCKSTEP_LISTENER");
  const int descriptor = text ? std::atoi(text) : -1;
  int listens = 0;
  socklen_t size = sizeof listens;
  if (descriptor < 3 || getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 ||
      listens == 0)
    return std::nullopt;
  tcp::Socket listener(dup(descriptor));
  if (!listener || tcp::local_endpoint(listener).port != port) return std::nullopt;
  fcntl(listener.descriptor(), F_SETFD, FD_CLOEXEC);
  close(descriptor);
  return listener;
}

tcp::Socket listen_everywhere(const TcpJob& job, const char* why) {
  std::fprintf(stderr,
               "lockstep: MASTER_ADDR %s is %s, so rank 0 listens on all of its interfaces, port "
               "%d\n",
               job.address.c_str(), why, job.port);
  return tcp::listen_everywhere({job.address, job.port});
}

/// Rank 0's socket, on the interface that it is told, where that is one of its own. What stands for
/// it elsewhere, as the address of a service or of a router that translates addresses, leads to all
/// interfaces; and so does a name that is loopback here, as hosts often call themselves in
/// /etc/hosts. Ranks have a token then, so that strangers reach nothing but a closed connection.
tcp::Socket listen_for_ranks(const TcpJob& job, tcp::Deadline deadline) {
  if (job.is_local) return tcp::listen_locally(job.port);
  if (auto listener = inherited_listener(job.port)) return std::move(*listener);
  const tcp::Endpoint rendezvous{job.address, job.port};
  tcp::Socket listener = tcp::try_listen_on(rendezvous, deadline);
  if (!listener && errno == EADDRNOTAVAIL)
    return listen_everywhere(job, "no address of rank 0's host");
  if (!listener) return tcp::listen_on(rendezvous);  // which says why not
  const bool is_name = !tcp::is_loopback(job.address);
  if (!is_name || !tcp::is_loopback(tcp::local_endpoint(listener).address)) return listener;
  listener.close();
  return listen_everywhere(job, "a loopback address on rank 0's host");
}

/// As accept_ranks, but a time-out says that other hosts do not reach rank 0 where it listens.
std::vector<tcp::Socket> accept_all(const tcp::Socket& listener, const tcp::Handshake& self,
                                    const TcpJob& job, tcp::Deadline deadline) {
  try {
    return tcp::accept_ranks(listener, self, 1, deadline);
  } catch (const Timeout& error) {
    if (job.is_local || !tcp::is_loopback(job.address)) throw;
    LOCKSTEP_THROW(
        Timeout, error.what(), ". Rank 0's MASTER_ADDR is ", job.address,
        ", so it listens to its own host alone: for ranks on others set it to an address "
        "of rank 0's host that they reach, on all of them");
  }
}

/// A star of connections to rank 0, which collects and hands out; of many ranks only until a tree
/// of connections is there.
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
  std::vector<std::string> exchange_over_star(std::string_view bytes);
  void tell_all(std::string_view failure) const noexcept;
  void connect_tree();
  std::string own_interface() const;
  tcp::Deadline deadline() const { return tcp::Clock::now() + job_.timeout; }
  void send(const tcp::Socket& to, std::string_view bytes, int peer) const;
  std::string receive(const tcp::Socket& from, int peer, std::uint64_t most) const;

  TcpJob job_;
  std::string interface_;
  std::vector<tcp::Socket> sockets_;  // on rank 0 by rank; elsewhere only the one to rank 0
  std::optional<ExchangeTree> tree_;
};

TcpBootstrap::TcpBootstrap(const TcpJob& job) : Bootstrap(job.timeout), job_(job) {
  const tcp::Handshake self{tcp::Purpose::rendezvous, job.token, job.rank, job.size};
  const tcp::Endpoint rendezvous{job.address, job.port};
  if (job.rank == 0) {
    const tcp::Socket listener = listen_for_ranks(job, deadline());
    sockets_ = accept_all(listener, self, job, deadline());
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
  if (job.size >= least_ranks_for_a_tree && !is_one_host()) connect_tree();
}

// Each rank accepts those below it, then goes to the one above.
void TcpBootstrap::connect_tree() {
  const tcp::Deadline limit = deadline();
  const auto check = [this] { check_peers(); };
  TreePlace place(peers(), job_.rank);
  const std::vector<int> below = place.children();
  tcp::Socket listener;
  std::string invitation = job_.rank == 0 ? make_token() : std::string();
  if (!below.empty()) {
    listener = tcp::listen_on({interface_, 0});
    invitation += '\n' + tcp::local_endpoint(listener).to_string();
  }
  const auto all = all_gather_bytes(invitation, "addresses of a tree");
  const std::string token = all[0].substr(0, all[0].find('\n'));
  const tcp::Handshake self{tcp::Purpose::exchange, token, job_.rank, job_.size};
  std::vector<ExchangeTree::Neighbour> children;
  auto accepted = tcp::accept_ranks(listener, self, below, limit, check);
  for (const int child : below)
    children.push_back({child, std::move(accepted[static_cast<std::size_t>(child)])});
  ExchangeTree::Neighbour parent;
  if (!place.is_root()) {
    parent.rank = place.parent();
    const std::string& there = all[static_cast<std::size_t>(parent.rank)];
    const auto endpoint = tcp::Endpoint::parse(there.substr(there.find('\n') + 1));
    const auto connect = [&] { return tcp::connect_to(endpoint, limit, check); };
    const std::string name = "bootstrap: rank " + std::to_string(parent.rank);
    parent.socket = tcp::join(connect, name, self, limit, check);
  }
  tree_.emplace(std::move(place), std::move(parent), std::move(children));
}

// Where the connections of the rendezvous arrive, but for those between ranks of one host.
std::string TcpBootstrap::own_interface() const {
  if (job_.is_local) return tcp::loopback_address();
  if (const char* chosen = std::getenv("LOCKSTEP_ADDRESS"); chosen && *chosen && !is_one_host())
    return tcp::reachable_address();
  std::string address;
  for (const tcp::Socket& socket : sockets_) {
    if (!socket) continue;
    address = tcp::local_endpoint(socket).address;
    if (!tcp::is_loopback(address)) return address;
  }
  return is_one_host() ? address : tcp::reachable_address();
}

void TcpBootstrap::send(const tcp::Socket& to, std::string_view bytes, int peer) const {
  require_room_for(bytes.size());
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
  const bool gives_up = (length & failure_flag) != 0;
  length &= ~failure_flag;
  if (gives_up) most = max_failure_text;
  LOCKSTEP_CHECK(length <= most, CorruptData, "bootstrap: rank ", peer, " announced ", length,
                 " bytes; at most ", most, " are allowed");
  std::string bytes;
  while (bytes.size() < length) {
    const std::size_t before = bytes.size();
    bytes.resize(std::min<std::size_t>(length, before + receive_step));
    receive_part(std::as_writable_bytes(std::span(bytes)).subspan(before));
  }
  if (gives_up) throw comm::PeerFailure(bytes);
  return bytes;
}

// The others hear from rank 0 why it gives up, and not that it is gone.
std::vector<std::string> TcpBootstrap::exchange(std::string_view bytes) {
  try {
    return tree_ ? tree_->exchange(bytes, job_.timeout, [this] { check_peers(); })
                 : exchange_over_star(bytes);
  } catch (const Error& error) {
    if (job_.rank == 0) tell_all(error.what());
    throw;
  }
}

void TcpBootstrap::tell_all(std::string_view failure) const noexcept {
  const std::string message = failure_message(failure);
  for (const tcp::Socket& socket : sockets_)
    if (socket)
      (void)::send(socket.descriptor(), message.data(), message.size(),
                   MSG_NOSIGNAL | MSG_DONTWAIT);
}

std::vector<std::string> TcpBootstrap::exchange_over_star(std::string_view bytes) {
  if (job_.rank != 0) {
    send(sockets_[0], bytes, 0);
    return parts_of(receive(sockets_[0], 0, max_exchange), job_.size, 0);
  }
  std::vector<std::string> all(static_cast<std::size_t>(job_.size));
  all[0] = bytes;
  std::uint64_t left = max_exchange - std::min<std::uint64_t>(max_exchange, length_of(bytes));
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

// Nobody ends the connections of the rendezvous but by ending. Rank 0 may have said why.
void TcpBootstrap::check_peers() const {
  std::vector<pollfd> entries;
  for (const tcp::Socket& socket : sockets_) entries.push_back({socket.descriptor(), POLLRDHUP, 0});
  if (poll(entries.data(), entries.size(), 0) <= 0) return;
  const auto gone = std::ranges::find_if(entries, [](const pollfd& e) { return e.revents != 0; });
  if (job_.rank != 0) receive(sockets_[0], 0, 0);
  LOCKSTEP_THROW(comm::PeerFailure, "bootstrap: rank ", gone - entries.begin(), closed_words);
}

}  // namespace

std::unique_ptr<Bootstrap> make_tcp_bootstrap(const TcpJob& job) {
  return std::make_unique<TcpBootstrap>(job);
}

}  // namespace lockstep::comm
