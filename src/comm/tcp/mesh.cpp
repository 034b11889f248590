#include "comm/tcp/mesh.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "lockstep/core/error.hpp"

namespace lockstep::comm::tcp {
namespace {

constexpr auto pause_between_attempts = std::chrono::milliseconds(50);
// Files of the program, such as those of a loader or a checkpoint, come and go.
constexpr auto pause_at_the_limit_of_files = std::chrono::milliseconds(200);
// What a rank that ends may still say to those it was not connected to.
constexpr auto farewell_timeout = std::chrono::milliseconds(500);
constexpr std::size_t max_silent = 256;  // connections beside those of all ranks
// Strangers take no more files at a time than those and these.
constexpr int max_accepted_in_a_turn = 64;

void say(const Socket& socket, const std::string& bytes) noexcept {
  ::send(socket.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  shutdown(socket.descriptor(), SHUT_WR);
}

}  // namespace

Mesh::Mesh(const MeshPlan& plan, Socket listener, std::vector<std::string> endpoints,
           const Socket& wake)
    : plan_(plan),
      listener_(std::move(listener)),
      endpoints_(std::move(endpoints)),
      wake_(wake),
      wake_thread_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      own_(message_of({Purpose::data, plan.token, plan.rank, plan.size})),
      links_(static_cast<std::size_t>(plan.size), Link::none) {
  LOCKSTEP_CHECK(wake_thread_, Error, "cannot make an event: ", std::strerror(errno));
  if (plan.size > 1) thread_ = std::thread([this] { run(); });
}

Mesh::~Mesh() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    end_ = Clock::now() + farewell_timeout;
  }
  eventfd_write(wake_thread_.descriptor(), 1);
  thread_.join();
}

void Mesh::want(int peer) {
  {
    const std::lock_guard lock(mutex_);
    wanted_.push_back(peer);
  }
  eventfd_write(wake_thread_.descriptor(), 1);
}

std::vector<Mesh::News> Mesh::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(news_, {});
}

void Mesh::tell_all(const std::string& bytes) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(tells_all_, true)) return;
    last_words_ = bytes;
    for (const News& news : news_)
      if (news.socket) say(news.socket, bytes);
  }
  eventfd_write(wake_thread_.descriptor(), 1);
}

// --- the thread ----------------------------------------------------------------------------------

void Mesh::run() {
  prctl(PR_SET_NAME, "lockstep-mesh");
  while (!is_over()) {
    wait();
    accept();
    receive_handshakes();
    begin_dials();
    for (auto next = dials_.begin(); next != dials_.end();) {
      const auto dial = next++;  // a step may end it
      step(dial->first, dial->second);
    }
  }
}

bool Mesh::is_over() {
  const std::lock_guard lock(mutex_);
  return is_stopping_ &&
         (!tells_all_ || Clock::now() >= end_ ||
          (dials_.empty() && std::ranges::find(links_, Link::none) == links_.end()));
}

void Mesh::wait() {
  std::vector<pollfd> entries{{wake_thread_.descriptor(), POLLIN, 0}};
  const auto now = Clock::now();
  Deadline next = Deadline::max();
  if (now >= listen_again_)
    entries.push_back({listener_.descriptor(), POLLIN, 0});
  else
    next = listen_again_;
  for (const Pending& pending : pending_) {
    entries.push_back({pending.socket.descriptor(), POLLIN, 0});
    next = std::min(next, pending.deadline);
  }
  for (const auto& [peer, dial] : dials_) {
    const bool connects = dial.state == Dial::State::connecting;
    if (dial.socket)
      entries.push_back(
          {dial.socket.descriptor(), static_cast<short>(connects ? POLLOUT : POLLIN), 0});
    next = std::min(next, dial.next);
  }
  {
    const std::lock_guard lock(mutex_);
    if (is_stopping_) next = std::min(next, end_);
  }
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(next - now).count();
  const int limit =
      next == Deadline::max() ? -1 : static_cast<int>(std::clamp<long long>(left + 1, 0, 60'000));
  poll(entries.data(), entries.size(), limit);
  eventfd_t value;
  eventfd_read(wake_thread_.descriptor(), &value);
}

void Mesh::report(News news) {
  link(news.peer) = news.socket ? Link::ready : Link::gone;
  {
    const std::lock_guard lock(mutex_);
    if (tells_all_) {
      if (!news.socket) return;
      say(news.socket, last_words_);
      told_.push_back(std::move(news.socket));
      return;
    }
    news_.push_back(std::move(news));
  }
  eventfd_write(wake_.descriptor(), 1);
}

// --- connections of others -----------------------------------------------------------------------

void Mesh::accept() {
  if (Clock::now() < listen_again_) return;
  try {
    for (int taken = 0; taken < max_accepted_in_a_turn; ++taken) {
      auto socket = accept_from(listener_);
      cannot_accept_since_.reset();
      if (!socket) return;
      pending_.push_back({std::move(*socket), Clock::now() + handshake_timeout});
    }
  } catch (const TooManyFiles& error) {
    const auto now = Clock::now();
    listen_again_ = now + pause_at_the_limit_of_files;
    if (!cannot_accept_since_) cannot_accept_since_ = now;
    if (now < *cannot_accept_since_ + plan_.timeout) return;
    const std::lock_guard lock(mutex_);
    news_.push_back({.peer = -1, .failure = error.what()});
    eventfd_write(wake_.descriptor(), 1);
  }
}

void Mesh::receive_handshakes() {
  for (Pending& pending : pending_) {
    const auto state = pending.read();
    if (state == Pending::State::waiting && Clock::now() < pending.deadline) continue;
    Socket socket = std::move(pending.socket);
    if (state != Pending::State::complete) continue;
    const auto peer = pending.verified_rank(own_);
    if (peer && *peer != plan_.rank && !has_hung_up(socket)) take_in(*peer, std::move(socket));
  }
  std::erase_if(pending_, [](const Pending& pending) { return !pending.socket; });
  const std::size_t limit = links_.size() + max_silent;
  if (pending_.size() > limit)
    pending_.erase(pending_.begin(), pending_.end() - static_cast<std::ptrdiff_t>(limit));
}

void Mesh::take_in(int peer, Socket socket) {
  if (link(peer) != Link::none && link(peer) != Link::dialing) return;
  if (const auto own = dials_.find(peer); own != dials_.end()) {
    if (peer > plan_.rank && own->second.state != Dial::State::paused) {
      own->second.held = std::move(socket);
      return;
    }
    dials_.erase(own);
  }
  welcome(socket);
  report({.peer = peer, .socket = std::move(socket)});
}

// --- connections of this rank --------------------------------------------------------------------

void Mesh::begin_dials() {
  std::vector<int> wanted;
  bool tells_all = false;
  {
    const std::lock_guard lock(mutex_);
    wanted.swap(wanted_);
    tells_all = tells_all_;
  }
  const auto now = Clock::now();
  for (const int peer : wanted) begin_dial(peer, peer > plan_.rank ? now + plan_.courtesy : now);
  for (int peer = 0; tells_all && peer < plan_.size; ++peer) begin_dial(peer, now);
}

void Mesh::begin_dial(int peer, Deadline at) {
  if (peer == plan_.rank) link(peer) = Link::ready;
  if (link(peer) != Link::none) return;
  link(peer) = Link::dialing;
  Dial& dial = dials_[peer];
  dial.next = at;
  dial.limit = at + plan_.timeout;
}

void Mesh::step(int peer, Dial& dial) {
  switch (dial.state) {
    case Dial::State::paused: return connect(peer, dial);
    case Dial::State::connecting: return present(peer, dial);
    case Dial::State::presented: return read_answer(peer, dial);
  }
}

void Mesh::connect(int peer, Dial& dial) {
  const auto now = Clock::now();
  if (now < dial.next) return;
  const std::string& there = endpoints_[static_cast<std::size_t>(peer)];
  if (now >= dial.limit)
    return end_dial(peer,
                    {.peer = peer,
                     .failure = "rank " + std::to_string(plan_.rank) + " cannot connect to rank " +
                                std::to_string(peer) + " at '" + there + "': " + dial.problem +
                                "; does a firewall let ranks reach each other?"});
  try {
    dial.socket = begin_connect(Endpoint::parse(there));
  } catch (const TooManyFiles& error) {
    return try_again(peer, dial, error.what());
  } catch (const Error& error) {
    return end_dial(peer, {.peer = peer, .failure = error.what()});
  }
  if (!dial.socket) return try_again(peer, dial, std::strerror(errno));
  dial.state = Dial::State::connecting;
  dial.next = dial.limit;
}

void Mesh::present(int peer, Dial& dial) {
  pollfd entry{dial.socket.descriptor(), POLLOUT, 0};
  if (poll(&entry, 1, 0) <= 0) {
    if (Clock::now() >= dial.limit) try_again(peer, dial, "nobody answered");
    return;
  }
  const int error = end_connect(dial.socket);
  if (error == ECONNREFUSED)
    return end_dial(peer, {.peer = peer, .is_gone = true, .failure = refusal_of(peer)});
  if (error != 0) return try_again(peer, dial, std::strerror(error));
  if (::send(dial.socket.descriptor(), &own_, sizeof own_, MSG_NOSIGNAL) !=
      static_cast<ssize_t>(sizeof own_))
    return try_again(peer, dial, "the connection was lost");
  dial.state = Dial::State::presented;
  dial.next = Clock::now() + acknowledgement_timeout;
}

std::string Mesh::refusal_of(int peer) const {
  const auto there = Endpoint::parse(endpoints_[static_cast<std::size_t>(peer)]);
  return "refuses connections to " + there.address + " port " + std::to_string(there.port) +
         ": it has ended, or a firewall rejects them (LOCKSTEP_ADDRESS lets a rank use another "
         "interface)";
}

void Mesh::read_answer(int peer, Dial& dial) {
  switch (answer_on(dial.socket)) {
    case Answer::accepted: return end_dial(peer, {.peer = peer, .socket = std::move(dial.socket)});
    case Answer::refused:
    case Answer::closed:
      return end_dial(peer, {.peer = peer, .is_gone = true, .failure = "closed its connection"});
    case Answer::lost: return try_again(peer, dial, "the connection was lost");
    case Answer::none: break;
  }
  if (Clock::now() < dial.next) return;
  dial.next = Deadline::max();  // it is up to the peer's process now
  if (was_kept(dial.socket)) return;
  reset_at_close(dial.socket);
  try_again(peer, dial, "its host does not acknowledge what is sent there");
}

void Mesh::try_again(int peer, Dial& dial, const std::string& problem) {
  if (dial.held) {
    Socket held = std::move(dial.held);
    dials_.erase(peer);
    link(peer) = Link::none;
    return take_in(peer, std::move(held));
  }
  dial.socket.close();
  dial.problem = problem;
  dial.state = Dial::State::paused;
  dial.next = Clock::now() + pause_between_attempts;
}

void Mesh::end_dial(int peer, News news) {
  dials_.erase(peer);
  report(std::move(news));
}

}  // namespace lockstep::comm::tcp
