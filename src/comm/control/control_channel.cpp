#include "comm/control/control_channel.hpp"

#include <algorithm>
#include <csignal>
#include <exception>
#include <limits>
#include <utility>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "comm/control/heartbeat.hpp"
#include "comm/control/stop_signals.hpp"
#include "comm/group_news.hpp"
#include "comm/run_progress.hpp"
#include "comm/tcp/handshake.hpp"
#include "comm/token.hpp"

namespace lockstep::comm::control {
namespace {

constexpr auto turn = std::chrono::milliseconds(50);
constexpr auto heartbeat_interval = std::chrono::milliseconds(500);
// A launcher follows SIGTERM with SIGKILL after a second or more.
constexpr auto termination_grace_period = std::chrono::milliseconds(400);
// How long a rank that failed waits for rank 0's word; it usually comes at once. On a busy machine
// rank 0 may have to wait for a core.
constexpr auto answer_timeout = std::chrono::seconds(3);
// A rank 0 whose last heartbeats did not come is stopped, or cut off: it will not say anything. On
// one that was late after all, a failure is told twice.
constexpr auto silence_of_hub = std::chrono::seconds(2);
// After which a rank of this host is looked for among the processes.
constexpr auto silence_of_the_dead = std::chrono::seconds(3);
constexpr auto cause_timeout = std::chrono::seconds(1);
// So much of a turn counts as silence of the others. A longer one was this process' own absence: a
// suspended job or machine wakes up with all its ranks alive.
constexpr auto longest_turn = std::chrono::milliseconds(500);

std::string describe(const Bootstrap& bootstrap, int rank) {
  const Peer& peer = bootstrap.peers()[static_cast<std::size_t>(rank)];
  return "rank " + std::to_string(rank) + " (host " + peer.host + ", pid " +
         std::to_string(peer.pid) + ")";
}

}  // namespace

ControlChannel::ControlChannel(Bootstrap& bootstrap, ControlHandlers handlers,
                               std::chrono::milliseconds heartbeat_timeout,
                               std::chrono::seconds stall_time)
    : bootstrap_(bootstrap),
      handlers_(std::move(handlers)),
      heartbeat_timeout_(heartbeat_timeout),
      stall_time_(stall_time),
      stop_(bootstrap.rank(), bootstrap.size(),
            [this](const Message& message) { broadcast(message, -1); }),
      inquiries_(bootstrap.size()) {
  if (bootstrap.size() == 1) return;
  wake_ = tcp::Socket(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  connect();
  for (Link& link : links_) {
    link.can_be_seen = is_known_by_pid(link) && runs_this_program(peer_of(link).pid);
    watch_.add(link.socket, index_of(link));
  }
  termination_notice_.emplace();
  last_turn_ = next_heartbeat_ = tcp::Clock::now();
  thread_ = std::thread([this] { listen(); });
}

ControlChannel::~ControlChannel() { leave(); }

void ControlChannel::leave() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
    // While an exception unwinds, closing without a word is the right word.
    abandoned_ = std::uncaught_exceptions() > 0;
  }
  const bool is_hub = bootstrap_.rank() == 0;
  if (!is_hub && !abandoned_) broadcast({MessageType::bye}, -1);
  eventfd_write(wake_.descriptor(), 1);
  thread_.join();
  // All have said it, so the others may go.
  if (is_hub && !abandoned_ && !failure()) broadcast({MessageType::bye}, -1);
}

void ControlChannel::connect() {
  const auto deadline = tcp::Clock::now() + bootstrap_.timeout();
  const auto check = [&] { bootstrap_.check_peers(); };
  tcp::Socket listener;
  std::string invitation;
  if (bootstrap_.rank() == 0) {
    listener = tcp::listen_on({bootstrap_.address(), 0});
    invitation = tcp::local_endpoint(listener).to_string() + "\n" + make_token();
  }
  invitation = bootstrap_.broadcast_bytes(invitation, 0, "address of the control channel");
  const std::size_t separator = invitation.find('\n');
  LOCKSTEP_CHECK(separator != std::string::npos, CorruptData, "malformed invitation of rank 0");
  const tcp::Handshake self{tcp::Purpose::control, invitation.substr(separator + 1),
                            bootstrap_.rank(), bootstrap_.size()};
  if (bootstrap_.rank() == 0) {
    auto sockets = tcp::accept_ranks(listener, self, 1, deadline, check);
    for (int rank = 1; rank < bootstrap_.size(); ++rank)
      links_.push_back(
          {.rank = rank, .socket = std::move(sockets[static_cast<std::size_t>(rank)])});
  } else {
    const auto endpoint = tcp::Endpoint::parse(invitation.substr(0, separator));
    const auto connect = [&] { return tcp::connect_to(endpoint, deadline, check); };
    links_.push_back(
        {.rank = 0,
         .socket = tcp::join(connect, "control channel: rank 0", self, deadline, check)});
  }
}

// --- the channel's thread
// --------------------------------------------------------------------------

void ControlChannel::listen() {
  while (!is_done()) {
    wait();
    for (const int link : watch_.take()) serve(links_[static_cast<std::size_t>(link)]);
    deliver_due();
    keep_alive();
    check_termination();
    check_stop_signals();
  }
}

bool ControlChannel::is_done() {
  const std::lock_guard lock(mutex_);
  if (!leaving_) return false;
  if (failure_ || abandoned_) return true;
  return std::ranges::all_of(links_, [](const Link& link) { return link.has_left; });
}

void ControlChannel::wait() {
  pollfd entries[] = {{wake_.descriptor(), POLLIN, 0}, {watch_.descriptor(), POLLIN, 0}};
  poll(entries, std::size(entries), static_cast<int>(turn.count()));
  eventfd_t value;
  eventfd_read(wake_.descriptor(), &value);
}

void ControlChannel::serve(Link& link) {
  const bool alive = link.reader.read(link.socket);
  while (const auto message = link.reader.next()) {
    link.unheard = {};
    handle(link, *message);
  }
  if (alive) return watch_.watch_again(link.socket, index_of(link));
  bool has_no_room = false;
  {
    const std::lock_guard lock(send_mutex_);
    link.socket.close();
    has_no_room = link.has_no_room;
  }
  if (link.has_left) return;
  link.has_left = true;
  lose(link, has_no_room
                 ? "it has not read what it was sent for a second, so the connection was cut"
                 : "connection closed");
}

void ControlChannel::lose(const Link& link, const std::string& how) {
  fail({.text = describe(bootstrap_, link.rank) + " was lost: " + how, .type = MessageType::lost},
       link.rank);
}

void ControlChannel::keep_alive() {
  const auto now = tcp::Clock::now();
  const auto passed = std::min<tcp::Clock::duration>(now - last_turn_, longest_turn);
  last_turn_ = now;
  if (now >= next_heartbeat_) {
    next_heartbeat_ = now + heartbeat_interval;
    if (handlers_.on_heartbeat) handlers_.on_heartbeat();
    broadcast({MessageType::heartbeat, running_seconds()}, -1);
    if (is_report_asked_for() && handlers_.on_stall) handlers_.on_stall({});
    if (bootstrap_.rank() == 0 && stall_time_.count() > 0) check_stall();
  }
  for (Link& link : links_) link.unheard += passed;
  if (bootstrap_.rank() != 0) hub_is_silent_ = links_.front().unheard >= silence_of_hub;
  if (heartbeat_timeout_.count() > 0) check_heartbeats();
}

void ControlChannel::check_heartbeats() {
  for (Link& link : links_) {
    if (!link.socket || link.has_left) continue;
    const Peer& peer = peer_of(link);
    if (link.can_be_seen && link.unheard >= silence_of_the_dead && has_ended(peer.pid)) {
      lose(link, "its process has ended, and one that it forked holds its connections");
      continue;
    }
    if (link.unheard < heartbeat_timeout_) continue;
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(link.unheard);
    lose(link, "silent for " + std::to_string(seconds.count()) + " s; " +
                   explain_missing_heartbeats(link.socket, peer, is_known_by_pid(link)));
  }
}

const Peer& ControlChannel::peer_of(const Link& link) const {
  return bootstrap_.peers()[static_cast<std::size_t>(link.rank)];
}

bool ControlChannel::is_known_by_pid(const Link& link) const {
  const Peer &peer = peer_of(link),
             &own = bootstrap_.peers()[static_cast<std::size_t>(bootstrap_.rank())];
  return peer.network == own.network && peer.processes == own.processes;
}

int ControlChannel::running_seconds() const {
  if (!handlers_.running_for) return 0;
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(handlers_.running_for()).count();
  return static_cast<int>(std::min<std::int64_t>(seconds, std::numeric_limits<int>::max()));
}

// Of ranks that wait for one another, those that are in no operation, or in a later one, are those
// that the others wait for, if they are in its group. Nobody waits for one that has left.
void ControlChannel::check_stall() {
  std::vector<int> seconds{running_seconds()};
  for (const Link& link : links_) seconds.push_back(link.has_left ? -1 : link.running_seconds);
  const int longest = *std::ranges::max_element(seconds);
  const bool is_told = std::exchange(is_stall_told_, longest >= stall_time_.count());
  if (!is_stall_told_ || is_told) return;
  std::string behind;
  for (std::size_t rank = 0; rank < seconds.size(); ++rank)
    if (seconds[rank] >= 0 && seconds[rank] <= longest / 2)
      behind += (behind.empty() ? "" : ", ") + describe(bootstrap_, static_cast<int>(rank));
  const std::string text = "ranks have been in one operation for " + std::to_string(longest) +
                           " s" + (behind.empty() ? "" : ", waiting for " + behind);
  broadcast({MessageType::stall_report}, -1);
  if (handlers_.on_stall) handlers_.on_stall(text);
}

void ControlChannel::handle(Link& link, const Message& message) {
  switch (message.type) {
    case MessageType::bye: link.has_left = true; return;
    case MessageType::failed:
    case MessageType::lost:
    case MessageType::stalled:
      return fail({message.text, message.exit_code, message.type}, link.rank);
    case MessageType::heartbeat: link.running_seconds = message.exit_code; return;
    case MessageType::stall_report:
      if (handlers_.on_stall) handlers_.on_stall({});
      return;
    case MessageType::news:
      if (bootstrap_.rank() != 0) return handlers_.on_news(message.text);
      return hand_on(message, link.rank);
    case MessageType::signatures: return handlers_.on_signatures(link.rank, message.text);
    case MessageType::stop_request:
    case MessageType::stop_question:
    case MessageType::stop_answer:
    case MessageType::stop_decision:
      if (!stop_.receive(link.rank, message))
        lose(link, "it sent a message about a stop that makes no sense");
      return;
  }
}

// Keeps the first failure, and hands it on: rank 0 to all, the others to whoever waits here.
void ControlChannel::fail(const JobFailure& failure, int origin) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_ || abandoned_) return;
    failure_ = failure;
  }
  failed_.notify_all();
  if (bootstrap_.rank() == 0)
    broadcast({failure.type, failure.exit_code, failure.text},
              failure.type == MessageType::lost ? origin : -1);
  handlers_.on_failure(failure);
}

void ControlChannel::broadcast(const Message& message, int except) {
  const std::lock_guard lock(send_mutex_);
  for (Link& link : links_)
    if (link.rank != except) send_to(link, message);
}

// With the mutex of sending held.
void ControlChannel::send_to(Link& link, const Message& message) {
  if (link.socket && !link.has_no_room)
    link.has_no_room = send_message(link.socket, message) == Sent::no_room;
}

// Rank 0: another rank's news.
void ControlChannel::hand_on(const Message& message, int origin) {
  if (inquiries_.take(origin, message.text, tcp::Clock::now())) return;
  broadcast(message, origin);
  handlers_.on_news(message.text);
}

// Rank 0: what ranks ask each other, and their answers.
void ControlChannel::deliver_due() {
  if (bootstrap_.rank() != 0) return;
  static_assert(news::max_bytes <= max_text);
  for (InquiryHub::Delivery& due : inquiries_.take_due(tcp::Clock::now())) {
    if (due.rank == 0) {
      handlers_.on_news(due.text);
      continue;
    }
    const std::lock_guard lock(send_mutex_);
    send_to(links_[static_cast<std::size_t>(due.rank - 1)],
            {MessageType::news, 0, std::move(due.text)});
  }
}

void ControlChannel::check_termination() {
  const int signal = TerminationNotice::arrived();
  if (!signal) return;
  const auto now = tcp::Clock::now();
  if (!termination_) termination_ = now + termination_grace_period;
  if (now < *termination_ && !failure()) return;
  // No failure explains it, so it came from outside, maybe to this rank alone: the others end too.
  const JobFailure end{
      .text = "[rank " + std::to_string(bootstrap_.rank()) + "] error: " +
              (signal == SIGINT ? "interrupted (SIGINT, as Ctrl-C sends it)" : "ended by SIGTERM"),
      .exit_code = 128 + signal};
  if (bootstrap_.rank() != 0 && !failure()) broadcast({end.type, end.exit_code, end.text}, -1);
  if (bootstrap_.rank() == 0) fail(end, 0);
  TerminationNotice::obey();
}

void ControlChannel::check_stop_signals() {
  const auto arrival = StopSignals::first();
  if (!arrival) return;
  const std::string self = "rank " + std::to_string(bootstrap_.rank());
  stop_.request(self + " got " + name_of_signal(arrival->signal), arrival->at);
  const int second = StopSignals::second();
  if (!second || failure()) return;
  const JobFailure end{.text = "[" + self + "] error: ended by a second " + name_of_signal(second),
                       .exit_code = 128 + second};
  if (bootstrap_.rank() != 0) broadcast({end.type, end.exit_code, end.text}, -1);
  fail(end, 0);
}

// --- the other threads' side
// -----------------------------------------------------------------------

bool ControlChannel::report(const JobFailure& failure) {
  if (bootstrap_.size() == 1) return false;
  const bool is_hub = bootstrap_.rank() == 0;
  // The group's abort may overtake the message that says why.
  if (failure.is_consequence && wait_for_failure(cause_timeout)) return true;
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return true;
    if (is_hub) failure_ = failure;
  }
  broadcast({failure.type, failure.exit_code, failure.text}, -1);
  // Rank 0 decides which failure was first, says it, and answers with it.
  return !is_hub && wait_for_answer();
}

bool ControlChannel::wait_for_answer() {
  const auto deadline = tcp::Clock::now() + answer_timeout;
  while (!wait_for_failure(turn))
    if (hub_is_silent_ || tcp::Clock::now() >= deadline) return false;
  return true;
}

void ControlChannel::announce(const std::string& news) {
  if (bootstrap_.rank() == 0 && inquiries_.take(0, news, tcp::Clock::now()))
    eventfd_write(wake_.descriptor(), 1);
  else
    broadcast({MessageType::news, 0, news}, -1);
}

void ControlChannel::send_signatures(const std::string& batch) {
  broadcast({MessageType::signatures, 0, batch}, -1);
}

std::optional<JobFailure> ControlChannel::failure() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

bool ControlChannel::wait_for_failure(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  return failed_.wait_for(lock, limit, [&] { return failure_.has_value(); });
}

}  // namespace lockstep::comm::control
