#include "lockstep_run/agent.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <fstream>

#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include "lockstep_run/listener.hpp"

namespace run {
namespace {

using std::chrono::milliseconds;

// A longer turn was this process' own absence, and not the supervisor's.
constexpr milliseconds longest_agent_turn(2000);
constexpr milliseconds longest_end(5000);

/// SIGCHLD as something to poll.
Descriptor ended_children() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  return Descriptor(checked(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK), "signalfd"));
}

/// Sends SIGKILL to all children. @return whether there are any.
bool kill_children() {
  const std::string self = std::to_string(getpid());
  std::ifstream file("/proc/" + self + "/task/" + self + "/children");
  bool has_any = false;
  for (pid_t child = 0; file >> child; has_any = true) ::kill(child, SIGKILL);
  return has_any;
}

/// Ends all children, and whatever becomes one when its parent has ended, unless the system holds
/// them for long.
void end_children() {
  const auto deadline = std::chrono::steady_clock::now() + longest_end;
  while (kill_children() && std::chrono::steady_clock::now() < deadline)
    if (waitpid(-1, nullptr, WNOHANG) <= 0) poll(nullptr, 0, 2);
}

}  // namespace

Agent::Agent(int in, int out, milliseconds silence_limit)
    : in_(in), out_(out), silence_limit_(silence_limit), children_(ended_children()) {
  // A scheduler signals all processes of a job; what the ranks hear, the supervisor decides.
  for (const int number : {SIGPIPE, SIGHUP, SIGINT, SIGTERM, SIGUSR1}) signal(number, SIG_IGN);
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // of what leaves a rank's group of processes, too
  for (const int end : {in_, out_}) fcntl(end, F_SETFL, O_NONBLOCK);
  last_turn_ = next_alive_ = Clock::now();
}

Agent::~Agent() { end_ranks(); }

int Agent::run() {
  // The first end of line is that of a banner without one.
  const std::string handshake = '\n' + std::string(agent_handshake) + '\n';
  is_alone_ = ::write(out_, handshake.data(), handshake.size()) < 0;
  while (!is_alone_) {
    wait();
    receive();
    pass_output();
    reap();
    keep_alive();
  }
  return 0;
}

void Agent::wait() {
  std::vector<pollfd> entries{{in_, POLLIN, 0}, {children_.get(), POLLIN, 0}};
  for (const RankProcess& rank : ranks_)
    for (const int output : rank.outputs()) entries.push_back({output, POLLIN, 0});
  poll(entries.data(), entries.size(), static_cast<int>(alive_interval.count()));
}

void Agent::receive() {
  hear();
  while (!messages_.empty()) {
    const Message message = std::move(messages_.front());
    messages_.pop_front();
    handle(message);
  }
}

void Agent::hear() {
  std::array<char, 4096> bytes;
  ssize_t count = 0;
  while ((count = ::read(in_, bytes.data(), bytes.size())) > 0) {
    reader_.add({bytes.data(), static_cast<std::size_t>(count)});
    unheard_ = {};
  }
  if (count == 0) is_alone_ = true;
  while (auto message = reader_.next()) messages_.push_back(std::move(*message));
}

/// Handles what comes next as far as it is for the ranks that run, and needs no message sent.
void Agent::obey_signals() {
  for (; !messages_.empty(); messages_.pop_front()) {
    const MessageType type = messages_.front().type;
    if (type != MessageType::signal && type != MessageType::kill) return;
    handle(messages_.front());
  }
}

void Agent::handle(const Message& message) {
  switch (message.type) {
    case MessageType::listen: return listen(message.text);
    case MessageType::start: return start(message);
    case MessageType::signal:
      for (const RankProcess& rank : ranks_) rank.signal(static_cast<int>(message.numbers.at(0)));
      return;
    case MessageType::kill:
      for (const RankProcess& rank : ranks_) rank.signal(SIGKILL);
      return;
    case MessageType::report: return report();
    default: return;
  }
}

/// What ranks are at: in the eyes of the system here, and each in its own words, if it can.
void Agent::report() {
  for (RankProcess& rank : ranks_) {
    if (!rank.is_running()) continue;
    send({MessageType::output,
          {rank.rank(), 2},
          lockstep::detail::concat("lockstep_run: rank ", rank.rank(), " (pid ", rank.pid(),
                                   ") behind step ", rank.progress().step, " ", rank.activity(),
                                   "\n")});
    rank.ask();
  }
}

void Agent::listen(const std::string& address) {
  try {
    Listener listener = listen_on(address);
    listener_ = std::move(listener.socket);
    send({MessageType::listening, {port_of(listener_), listener.is_own_address}});
  } catch (const lockstep::Error& error) {
    send({MessageType::listening, {0, 0}, error.what()});
  }
}

void Agent::start(const Message& message) try {
  const LaunchPlan plan = LaunchPlan::parse(message.text);
  const auto first = static_cast<int>(message.numbers.at(0));
  const auto count = static_cast<int>(message.numbers.at(1));
  longest_stop_ = static_cast<int>(message.numbers.at(2));
  ranks_.clear();
  end_children();  // what the former ranks have left
  for (int local = 0; local < count; ++local) {
    LaunchPlan own = plan;
    own.environment.push_back("RANK=" + std::to_string(first + local));
    own.environment.push_back("LOCAL_RANK=" + std::to_string(local));
    own.environment.push_back("LOCAL_WORLD_SIZE=" + std::to_string(count));
    ranks_.emplace_back(first + local, own, first + local == 0 ? listener_.get() : -1);
  }
  listener_.close();
} catch (const lockstep::Error& error) {
  end_ranks();
  send({MessageType::refused, {}, error.what()});
}

void Agent::pass_output() {
  for (RankProcess& rank : ranks_)
    rank.read([&](int stream, const std::string& lines) {
      send({MessageType::output, {rank.rank(), stream}, lines});
    });
}

void Agent::reap() {
  std::array<signalfd_siginfo, 8> taken;
  while (::read(children_.get(), taken.data(), sizeof taken) > 0) {
  }
  while (true) {
    siginfo_t info{};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) break;
    const auto rank = std::ranges::find(ranks_, info.si_pid, &RankProcess::pid);
    if (rank == ranks_.end()) {
      waitpid(info.si_pid, nullptr, 0);
      continue;
    }
    const int status = rank->finish([&](int stream, const std::string& lines) {
      send({MessageType::output, {rank->rank(), stream}, lines});
    });
    const Progress progress = rank->progress();
    send({MessageType::ended,
          {rank->rank(), status, progress.step, progress.first, progress.saved,
           progress.long_work}});
  }
  if (std::ranges::any_of(ranks_, &RankProcess::is_running)) return;
  ranks_.clear();
  kill_children();
}

void Agent::note_silence() {
  const auto now = Clock::now();
  unheard_ += std::min<Clock::duration>(now - last_turn_, longest_agent_turn);
  last_turn_ = now;
  if (silence_limit_.count() > 0 && unheard_ > silence_limit_) is_alone_ = true;
}

void Agent::keep_alive() {
  note_silence();
  const auto now = last_turn_;
  if (now < next_alive_) return;
  next_alive_ = now + alive_interval;
  Message alive{MessageType::alive};
  for (const RankProcess& rank : ranks_) {
    const Progress progress = rank.progress();
    for (const std::int64_t number :
         {progress.step, progress.first, progress.saved, progress.long_work})
      alive.numbers.push_back(number);
  }
  send(alive);
  end_stopped_ranks();
}

/// Other ranks find one that is stopped, if there are others, and it has joined them.
void Agent::end_stopped_ranks() {
  for (RankProcess& rank : ranks_) {
    const int seconds = rank.look_if_stopped();
    if (longest_stop_ == 0 || seconds < longest_stop_) continue;
    send({MessageType::output,
          {rank.rank(), 2},
          lockstep::detail::concat("lockstep_run: rank ", rank.rank(), " (pid ", rank.pid(),
                                   ") is stopped, by a signal or a debugger, for ", seconds,
                                   " s\n")});
    rank.signal(SIGKILL);
  }
}

void Agent::end_ranks() {
  for (RankProcess& rank : ranks_)
    if (rank.is_running()) rank.finish([](int, const std::string&) {});
  end_children();
}

void Agent::send(const Message& message) {
  const std::string bytes = encode(message);
  std::string_view left = bytes;
  while (!left.empty() && !is_alone_) {
    const ssize_t count = ::write(out_, left.data(), left.size());
    if (count > 0) left.remove_prefix(static_cast<std::size_t>(count));
    if (count < 0 && errno == EAGAIN)
      wait_for_room();
    else if (count < 0 && errno != EINTR)
      is_alone_ = true;
  }
}

/// For a supervisor that is slow to read, unless it is gone. What it asks of the ranks goes before.
void Agent::wait_for_room() {
  pollfd entries[] = {{out_, POLLOUT, 0}, {in_, POLLIN, 0}};
  poll(entries, 2, static_cast<int>(alive_interval.count()));
  hear();
  obey_signals();
  note_silence();
}

}  // namespace run
