#include "comm/bootstrap/exchange_tree.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <numeric>
#include <utility>

#include <poll.h>
#include <sys/socket.h>

#include "comm/bootstrap/exchange_message.hpp"
#include "lockstep/comm/errors.hpp"

namespace lockstep::comm {
namespace {

// A rank is missed by its parent first, which names it, then by those that wait for that one.
constexpr auto grace_of_a_step = std::chrono::milliseconds(200);
// So often a rank that waits looks for what concerns others than its neighbours.
constexpr auto time_between_checks = std::chrono::milliseconds(100);

std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

}  // namespace

// --- places --------------------------------------------------------------------------------------

TreePlace::TreePlace(std::span<const Peer> peers, int rank) : order_(peers.size()) {
  std::iota(order_.begin(), order_.end(), 0);
  std::vector<int> first_of_host;  // by rank
  for (const Peer& peer : peers)
    first_of_host.push_back(
        static_cast<int>(std::ranges::find(peers, peer.network, &Peer::network) - peers.begin()));
  std::ranges::stable_sort(order_, {}, [&](int other) { return first_of_host[at(other)]; });
  place_ = static_cast<int>(std::ranges::find(order_, rank) - order_.begin());
}

int TreePlace::parent() const { return order_[at(place_ & (place_ - 1))]; }

std::vector<int> TreePlace::children() const {
  std::vector<int> ranks;
  const int size = static_cast<int>(order_.size());
  for (int step = 1; place_ + step < size && (place_ & step) == 0; step *= 2)
    ranks.push_back(order_[at(place_ + step)]);
  return ranks;
}

int TreePlace::end_of(int place) const {
  const int size = static_cast<int>(order_.size());
  const int width = place == 0 ? size : 1 << std::countr_zero(static_cast<unsigned>(place));
  return std::min(size, place + width);
}

int TreePlace::count_below(int child) const {
  const int place = static_cast<int>(std::ranges::find(order_, child) - order_.begin());
  return end_of(place) - place;
}

// Of a range of n places: the bits of the last one.
int TreePlace::height() const {
  return std::bit_width(static_cast<unsigned>(end_of(place_) - place_ - 1));
}

int TreePlace::steps_down() const {
  return std::bit_width(static_cast<unsigned>(order_.size() - 1)) +
         std::popcount(static_cast<unsigned>(place_));
}

// --- exchanges -----------------------------------------------------------------------------------

ExchangeTree::ExchangeTree(TreePlace place, Neighbour parent, std::vector<Neighbour> children)
    : place_(std::move(place)) {
  if (!place_.is_root())
    links_.push_back({.rank = parent.rank, .socket = std::move(parent.socket)});
  for (Neighbour& child : children)
    links_.push_back({.rank = child.rank, .socket = std::move(child.socket)});
}

std::vector<std::string> ExchangeTree::exchange(std::string_view own,
                                                std::chrono::milliseconds timeout,
                                                tcp::Check check) {
  LOCKSTEP_CHECK(failure_.empty(), comm::PeerFailure, failure_);
  try {
    const std::vector<int>& order = place_.order();
    auto by_place = parts_of(run(own, timeout, check), static_cast<int>(order.size()),
                             place_.is_root() ? order.front() : place_.parent());
    std::vector<std::string> by_rank(by_place.size());
    for (std::size_t i = 0; i < order.size(); ++i) by_rank[at(order[i])] = std::move(by_place[i]);
    return by_rank;
  } catch (const Error& error) {
    give_up(error.what());
    throw;
  }
}

std::string ExchangeTree::run(std::string_view own, std::chrono::milliseconds timeout,
                              tcp::Check check) {
  const auto begin = tcp::Clock::now();
  const auto limit_after = [&](int steps) { return begin + timeout + steps * grace_of_a_step; };
  std::string all = gather(own, limit_after(place_.height()), check);
  const tcp::Deadline last = limit_after(place_.steps_down());
  if (!place_.is_root()) {
    send(parent().front(), all, last);
    receive(parent(), last, check);
    all = std::exchange(parent().front().body, {});
  }
  const auto below = children();
  for (auto child = below.rbegin(); child != below.rend(); ++child) send(*child, all, last);
  return all;
}

// What this rank and those below it give, by place.
std::string ExchangeTree::gather(std::string_view own, tcp::Deadline deadline, tcp::Check check) {
  receive(children(), deadline, check);
  std::string all = joined({std::string(own)});
  for (Link& child : children()) {
    parts_of(child.body, place_.count_below(child.rank), child.rank);  // refuses what is none
    all += std::exchange(child.body, {});
  }
  require_room_for(all.size());
  return all;
}

// A message from each of these. All neighbours are listened to: one that gives up says so.
void ExchangeTree::receive(std::span<Link> from, tcp::Deadline deadline, tcp::Check check) {
  for (Link& link : from) link.is_due = true;
  while (true) {
    const auto late = std::ranges::find(from, true, &Link::is_due);
    if (late == from.end()) return;
    LOCKSTEP_CHECK(tcp::Clock::now() < deadline, Timeout, "bootstrap: rank ", late->rank,
                   " sent nothing in time (LOCKSTEP_JOIN_TIMEOUT sets another)");
    std::vector<pollfd> entries;
    for (const Link& link : links_) entries.push_back({link.socket.descriptor(), POLLIN, 0});
    if (poll(entries.data(), entries.size(), static_cast<int>(time_between_checks.count())) == 0)
      check();
    for (std::size_t i = 0; i < entries.size(); ++i)
      if (entries[i].revents != 0) read(links_[i]);
  }
}

// A neighbour of which nothing is due says nothing but that it gives up.
void ExchangeTree::read(Link& link) {
  while (link.header_left > 0) {
    char* const room =
        reinterpret_cast<char*>(&link.header) + (sizeof link.header - link.header_left);
    std::size_t received = 0;
    if (!read_some(link, room, link.header_left, received)) return;
    link.header_left -= received;
    if (link.header_left == 0) read_header(link);
  }
  const std::size_t length = link.header & ~failure_flag;
  while (link.received < length) {
    link.body.resize(std::min<std::size_t>(length, link.received + receive_step));
    std::size_t received = 0;
    if (!read_some(link, link.body.data() + link.received, link.body.size() - link.received,
                   received))
      return;
    link.received += received;
  }
  link.header_left = sizeof link.header;
  link.received = 0;
  if (link.header & failure_flag) throw comm::PeerFailure(std::exchange(link.body, {}));
  link.is_due = false;
}

void ExchangeTree::read_header(Link& link) {
  const std::uint64_t length = link.header & ~failure_flag;
  const bool gives_up = (link.header & failure_flag) != 0;
  LOCKSTEP_CHECK(gives_up || link.is_due, CorruptData, "bootstrap: rank ", link.rank, " sent ",
                 length, " bytes where nothing was due");
  const std::uint64_t most = gives_up ? max_failure_text : max_exchange;
  LOCKSTEP_CHECK(length <= most, CorruptData, "bootstrap: rank ", link.rank, " announced ", length,
                 " bytes; at most ", most, " are allowed");
  link.body.clear();
}

// False: there is no more as yet.
bool ExchangeTree::read_some(Link& link, char* room, std::size_t size, std::size_t& received) {
  const ssize_t count = ::recv(link.socket.descriptor(), room, size, 0);
  if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return false;
  LOCKSTEP_CHECK(count > 0, comm::PeerFailure, "bootstrap: rank ", link.rank,
                 " closed its connection; it may have failed");
  received = static_cast<std::size_t>(count);
  return true;
}

void ExchangeTree::send(Link& link, std::string_view bytes, tcp::Deadline deadline) {
  const std::uint64_t length = bytes.size();
  link.is_amid_ours = true;
  const bool is_sent = tcp::send_all(link.socket, std::as_bytes(std::span(&length, 1)), deadline) &&
                       tcp::send_all(link.socket, std::as_bytes(std::span(bytes)), deadline);
  if (!is_sent) read(link);  // what it said before it went
  LOCKSTEP_CHECK(is_sent, comm::PeerFailure, "bootstrap: rank ", link.rank,
                 " closed its connection; it may have failed");
  link.is_amid_ours = false;
}

void ExchangeTree::give_up(const std::string& reason) noexcept {
  failure_ = reason;
  const std::string message = failure_message(reason);
  for (const Link& link : links_)
    if (!link.is_amid_ours)
      (void)::send(link.socket.descriptor(), message.data(), message.size(), MSG_NOSIGNAL);
}

}  // namespace lockstep::comm
