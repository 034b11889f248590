#include "comm/tcp/tcp_transport.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "lockstep/comm/errors.hpp"

namespace lockstep::comm::tcp {
namespace {

constexpr std::uint64_t abort_flag = std::uint64_t{1} << 63;
constexpr std::size_t max_reason = 2000;

}  // namespace

// One message on its way out: the length, then the data.
struct TcpTransport::SendState {
  int peer;
  std::span<const std::byte> data;
  std::uint64_t header;
  std::size_t header_left = sizeof(std::uint64_t);
};

// One message on its way in.
struct TcpTransport::ReceiveState {
  host::Incoming* message;
  std::uint64_t header = 0;
  std::size_t header_left = sizeof(std::uint64_t);
  std::size_t data_left = 0;

  bool is_complete() const { return header_left == 0 && data_left == 0; }
};

// The messages of one transfer. Those of one pair go one after the other.
struct TcpTransport::Batch {
  std::vector<SendState> sends;
  std::vector<ReceiveState> receives;
  std::vector<pollfd> entries;
  std::vector<short> wanted;    // poll events by rank
  bool watches_others = false;  // also ranks that no message goes to or comes from

  // Takes out the messages that have come, or puts the next of their peers into their place.
  void end_receives(host::Arrived arrived) {
    for (ReceiveState& state : receives)
      if (state.is_complete() && arrived(*state.message)) state = {state.message};
    std::erase_if(receives, [](const ReceiveState& state) { return state.is_complete(); });
  }

  bool is_due_from(int peer) const {
    return std::ranges::any_of(
        receives, [peer](const ReceiveState& state) { return state.message->peer == peer; });
  }

  // The peers that messages still go to or come from.
  std::vector<int> missing() const {
    std::vector<int> peers;
    for (const SendState& state : sends) peers.push_back(state.peer);
    for (const ReceiveState& state : receives) peers.push_back(state.message->peer);
    std::ranges::sort(peers);
    const auto [first, last] = std::ranges::unique(peers);
    peers.erase(first, last);
    return peers;
  }

  template <class States, class PeerOf, class Pump>
  static void pump(States& states, int size, PeerOf peer_of, Pump pump_one) {
    std::vector<char> is_blocked(static_cast<std::size_t>(size));
    for (auto& state : states) {
      char& blocked = is_blocked[static_cast<std::size_t>(peer_of(state))];
      if (!blocked && !pump_one(state)) blocked = true;
    }
  }
};

TcpTransport::TcpTransport(const MeshPlan& plan, host::GatherBytes all_gather)
    : plan_(plan),
      sockets_(static_cast<std::size_t>(plan.size)),
      is_unwatched_(static_cast<std::size_t>(plan.size)),
      is_wanted_(static_cast<std::size_t>(plan.size)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      is_mid_message_(static_cast<std::size_t>(plan.size)),
      is_amid_theirs_(static_cast<std::size_t>(plan.size)) {
  LOCKSTEP_CHECK(wake_, Error, "cannot make an event: ", std::strerror(errno));
  make_room_for_connections(plan.size);
  Socket listener = listen_on({plan.address, 0});
  auto endpoints = all_gather(local_endpoint(listener).to_string());
  mesh_ = std::make_unique<Mesh>(plan_, std::move(listener), std::move(endpoints), wake_);
}

// --- connections
// ------------------------------------------------------------------------------------

// Who waits for a message connects, too: else it would not see that the sender is gone.
void TcpTransport::connect(const Batch& batch) {
  for (const int peer : batch.missing()) {
    const auto place = static_cast<std::size_t>(peer);
    if (sockets_[place] || is_wanted_[place]) continue;
    is_wanted_[place] = true;
    mesh_->want(peer);
  }
}

void TcpTransport::take_news() {
  eventfd_t value;
  if (eventfd_read(wake_.descriptor(), &value) != 0) return;
  const std::lock_guard lock(mutex_);
  for (Mesh::News& news : mesh_->take()) {
    if (news.is_gone)
      gone_.try_emplace(news.peer, std::move(news.failure));
    else if (!news.failure.empty())
      failure_ = std::move(news.failure);
    if (!news.socket) continue;
    socket(news.peer) = std::move(news.socket);
    watch_.add(socket(news.peer), news.peer);
  }
}

bool TcpTransport::has_connection(int peer) {
  if (socket(peer)) return true;
  if (const auto gone = gone_.find(peer); gone != gone_.end())
    throw host::PeerGone{.peer = peer, .how = gone->second};
  LOCKSTEP_CHECK(failure_.empty(), Error, failure_);
  return false;
}

// --- transfers
// -------------------------------------------------------------------------------------

void TcpTransport::transfer(std::span<const host::Outgoing> out, std::span<host::Incoming> in,
                            const host::WaitOptions& options) {
  exchange(out, in, options, [](host::Incoming&) { return false; });
}

void TcpTransport::exchange(std::span<const host::Outgoing> out, std::span<host::Incoming> in,
                            const host::WaitOptions& options, host::Arrived arrived) {
  Batch batch;
  for (const host::Outgoing& message : out)
    batch.sends.push_back({message.peer, message.data, message.data.size()});
  for (host::Incoming& message : in) batch.receives.push_back({&message});
  batch.wanted.resize(static_cast<std::size_t>(size()));
  take_news();
  connect(batch);
  while (true) {
    check_abort();
    Batch::pump(
        batch.sends, size(), [](const SendState& state) { return state.peer; },
        [&](SendState& state) { return has_connection(state.peer) && pump_send(state); });
    Batch::pump(
        batch.receives, size(), [](const ReceiveState& state) { return state.message->peer; },
        [&](ReceiveState& state) {
          return has_connection(state.message->peer) && pump_receive(state);
        });
    std::erase_if(batch.sends, [](const SendState& state) {
      return state.header_left == 0 && state.data.empty();
    });
    batch.end_receives(arrived);
    if (batch.sends.empty() && batch.receives.empty()) return;
    if (options.deadline->may_be_over())
      if (auto missing = batch.missing(); options.deadline->is_over(missing))
        throw host::TransferTimeout{std::move(missing)};
    poll_once(batch);
  }
}

// While messages go on, only the sockets that they go over are looked at. An abort by another rank
// stops them sooner or later, so that this one looks at all its connections.
void TcpTransport::poll_once(Batch& batch) {
  for (const SendState& state : batch.sends)
    batch.wanted[static_cast<std::size_t>(state.peer)] |= POLLOUT;
  for (const ReceiveState& state : batch.receives)
    batch.wanted[static_cast<std::size_t>(state.message->peer)] |= POLLIN;
  batch.entries.assign(1, {wake_.descriptor(), POLLIN, 0});
  if (batch.watches_others) batch.entries.push_back({watch_.descriptor(), POLLIN, 0});
  for (const int peer : batch.missing()) {
    const short events = std::exchange(batch.wanted[static_cast<std::size_t>(peer)], 0);
    if (socket(peer)) batch.entries.push_back({socket(peer).descriptor(), events, 0});
  }
  const int limit = batch.watches_others ? 100 : 2;
  const int ready = poll(batch.entries.data(), batch.entries.size(), limit);
  const bool sees_others = batch.watches_others && batch.entries[1].revents != 0;
  batch.watches_others |= ready == 0 || batch.entries[0].revents != 0;
  take_news();
  if (sees_others) look_at_others(&batch);
}

// At ranks that have sent something. @param batch that is under way, if any
void TcpTransport::look_at_others(const Batch* batch) {
  for (const int peer : watch_.take()) {
    const bool is_due = batch && batch->is_due_from(peer);
    if (!is_due && may_still_abort(peer))
      watch_.watch_again(socket(peer), peer);
    else
      is_unwatched_[static_cast<std::size_t>(peer)] = true;
  }
}

// Of a peer from which nothing is due. What it sends for later stays where it is, and so does its
// end: false then.
bool TcpTransport::may_still_abort(int peer) {
  std::uint64_t header = 0;
  const ssize_t there = ::recv(socket(peer).descriptor(), &header, sizeof header, MSG_PEEK);
  if (there < 0) return would_block();
  if (there < static_cast<ssize_t>(sizeof header)) return there > 0;
  if (!(header & abort_flag)) return false;
  receive_some(peer, reinterpret_cast<std::byte*>(&header), sizeof header);
  throw_abort(peer, header & ~abort_flag);
}

// What it said before it went tells more, unless it lies behind a message that nobody receives.
void TcpTransport::throw_gone(int peer) {
  check_abort();
  if (!is_amid_theirs_[static_cast<std::size_t>(peer)]) may_still_abort(peer);
  throw host::PeerGone{peer};
}

// Sends what the socket takes; true when the message is through.
bool TcpTransport::pump_send(SendState& state) {
  std::unique_lock lock(mutex_);
  while (state.header_left > 0 || !state.data.empty()) {
    const auto* header = reinterpret_cast<const std::byte*>(&state.header) +
                         (sizeof state.header - state.header_left);
    iovec parts[2] = {{const_cast<std::byte*>(header), state.header_left},
                      {const_cast<std::byte*>(state.data.data()), state.data.size()}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    const ssize_t sent = sendmsg(socket(state.peer).descriptor(), &message, MSG_NOSIGNAL);
    if (sent < 0 && would_block()) return false;
    if (sent < 0) {
      lock.unlock();
      throw_gone(state.peer);
    }
    const std::size_t of_header = std::min(state.header_left, static_cast<std::size_t>(sent));
    state.header_left -= of_header;
    state.data = state.data.subspan(static_cast<std::size_t>(sent) - of_header);
    is_mid_message_[static_cast<std::size_t>(state.peer)] =
        state.header_left > 0 || !state.data.empty();
  }
  return true;
}

std::size_t TcpTransport::receive_some(int peer, std::byte* room, std::size_t size) {
  const ssize_t received = ::recv(socket(peer).descriptor(), room, size, 0);
  if (received < 0 && would_block()) return 0;
  if (received <= 0) throw host::PeerGone{peer};
  return static_cast<std::size_t>(received);
}

void TcpTransport::read_header(ReceiveState& state) {
  auto* place =
      reinterpret_cast<std::byte*>(&state.header) + (sizeof state.header - state.header_left);
  state.header_left -= receive_some(state.message->peer, place, state.header_left);
  if (state.header_left > 0) return;
  const int peer = state.message->peer;
  if (state.header & abort_flag) throw_abort(peer, state.header & ~abort_flag);
  LOCKSTEP_CHECK(state.header <= state.message->room.size(), CorruptData, "rank ", peer, " sent ",
                 state.header, " bytes where at most ", state.message->room.size(), " were due");
  state.message->received = state.data_left = state.header;
}

// Receives what is there; true when the message is complete.
bool TcpTransport::pump_receive(ReceiveState& state) {
  const auto place = static_cast<std::size_t>(state.message->peer);
  while (state.header_left > 0) {
    const std::size_t before = state.header_left;
    read_header(state);
    is_amid_theirs_[place] = state.header_left < sizeof state.header;
    if (state.header_left == before) return false;
  }
  while (state.data_left > 0) {
    std::byte* to = state.message->room.data() + (state.message->received - state.data_left);
    const std::size_t received = receive_some(state.message->peer, to, state.data_left);
    if (received == 0) return false;
    state.data_left -= received;
  }
  is_amid_theirs_[place] = false;
  if (std::exchange(is_unwatched_[place], false))
    watch_.watch_again(socket(state.message->peer), state.message->peer);
  return true;
}

// --- aborts
// ----------------------------------------------------------------------------------------

void TcpTransport::throw_abort(int peer, std::size_t length) {
  std::string reason(std::min(length, max_reason), '\0');
  receive_all(socket(peer), std::as_writable_bytes(std::span(reason)),
              Clock::now() + std::chrono::seconds(1));
  throw PeerFailure(reason);
}

void TcpTransport::check_abort() {
  const std::lock_guard lock(mutex_);
  if (aborted_) throw PeerFailure(reason_);
}

// Between transfers a header comes next. Behind a message that nobody has received it is not seen.
void TcpTransport::check() {
  check_abort();
  take_news();
  look_at_others(nullptr);
}

std::map<int, std::vector<std::byte>> TcpTransport::peek(std::size_t most) {
  take_news();
  std::map<int, std::vector<std::byte>> messages;
  std::vector<std::byte> bytes(sizeof(std::uint64_t) + most);
  for (int peer = 0; peer < size(); ++peer) {
    if (!socket(peer) || is_amid_theirs_[static_cast<std::size_t>(peer)]) continue;
    const ssize_t there = ::recv(socket(peer).descriptor(), bytes.data(), bytes.size(), MSG_PEEK);
    std::uint64_t header = abort_flag;
    if (there > static_cast<ssize_t>(sizeof header))
      std::memcpy(&header, bytes.data(), sizeof header);
    if (!(header & abort_flag))
      messages[peer].assign(bytes.begin() + sizeof header, bytes.begin() + there);
  }
  return messages;
}

// A peer in the middle of a message cannot be told why: for it the connection just ends.
void TcpTransport::abort(const std::string& reason) noexcept {
  const std::lock_guard lock(mutex_);
  if (aborted_) return;
  aborted_ = true;
  reason_ = reason.substr(0, max_reason);
  const std::uint64_t header = abort_flag | reason_.size();
  std::string message(reinterpret_cast<const char*>(&header), sizeof header);
  message += reason_;
  for (int peer = 0; peer < size(); ++peer) {
    if (!socket(peer)) continue;
    if (!is_mid_message_[static_cast<std::size_t>(peer)])
      ::send(socket(peer).descriptor(), message.data(), message.size(), MSG_NOSIGNAL);
    shutdown(socket(peer).descriptor(), SHUT_WR);
  }
  mesh_->tell_all(message);
  eventfd_write(wake_.descriptor(), 1);
}

std::unique_ptr<host::Transport> TcpTransport::split(int, const std::vector<int>& members,
                                                     host::GatherBytes all_gather) {
  if (members.empty()) {
    all_gather({});
    return nullptr;
  }
  MeshPlan part = plan_;
  part.rank = static_cast<int>(std::ranges::find(members, plan_.rank) - members.begin());
  part.size = static_cast<int>(members.size());
  const auto gather_members = [&](std::string_view own) {
    const auto all = all_gather(own);
    std::vector<std::string> chosen;
    for (const int member : members) chosen.push_back(all[static_cast<std::size_t>(member)]);
    return chosen;
  };
  return std::make_unique<TcpTransport>(part, gather_members);
}

}  // namespace lockstep::comm::tcp
