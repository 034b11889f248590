#include <algorithm>
#include <csignal>

#include <sys/signalfd.h>

#include "lockstep_run/output.hpp"
#include "lockstep_run/supervisor.hpp"

// What comes to the supervisor while ranks run: messages, signals, readers that are slow.

namespace run {

using std::chrono::milliseconds;

namespace {

constexpr std::chrono::seconds after_interrupt(5);

}  // namespace

Descriptor Supervisor::ending_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGTERM, SIGUSR1, SIGINT}) sigaddset(&set, number);
  struct sigaction present {};
  sigaction(SIGHUP, nullptr, &present);
  if (present.sa_handler != SIG_IGN) sigaddset(&set, SIGHUP);  // of nohup
  sigprocmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return Descriptor(checked(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK), "signalfd"));
}

void Supervisor::turn(milliseconds limit) {
  if (kill_at_) {
    const auto left = std::chrono::ceil<milliseconds>(*kill_at_ - Clock::now());
    limit = std::clamp(left, milliseconds(0), limit);
  }
  hosts_.wait(signals_.get(), limit);
  for (std::size_t host = 0; host < hosts_.size(); ++host)
    for (const Message& message : hosts_.link(host).receive()) take(message, host);
  take_signals();
  hosts_.keep_alive();
  for (std::size_t host = 0; generation_ && host < hosts_.size(); ++host)
    if (!hosts_.link(host).is_up()) generation_->note_lost_host(host, hosts_.link(host).failure());
  try_lost_hosts();
}

void Supervisor::try_lost_hosts() {
  for (const std::string& failure : hosts_.try_lost()) say(failure);
}

void Supervisor::take(const Message& message, std::size_t host) {
  const auto number = [&](std::size_t i) { return message.numbers.at(i); };
  const auto rank = [&](std::size_t i) { return static_cast<int>(number(i)); };
  switch (message.type) {
    case MessageType::alive:
      if (std::ssize(message.numbers) != (generation_ ? 4 * generation_->ranks_of(host) : 0))
        return;  // of a former one
      for (std::size_t i = 0; i < message.numbers.size(); i += 4)
        generation_->note_progress(generation_->first_rank_of(host) + static_cast<int>(i / 4),
                                   {number(i), number(i + 1), number(i + 2), number(i + 3)});
      return compare_with_checkpoints();
    case MessageType::listening:
      port_ = rank(0);
      if (port_ == 0) refusal_ = message.text;
      if (port_ != 0 && number(1) == 0)
        say(hosts_.link(host).host().address, " is no address of ", hosts_.link(host).host().name,
            ", so rank 0 listens on all of its interfaces, port ", *port_);
      return;
    case MessageType::output:
      return write(rank(1), options_.tag_output ? tagged(rank(0), message.text) : message.text);
    case MessageType::ended:
      generation_->note_end(rank(0), rank(1), {number(2), number(3), number(4), number(5)});
      return compare_with_checkpoints();
    case MessageType::refused:
      refusal_ = message.text;
      return generation_->note_lost_host(host, message.text);
    default: return;
  }
}

/// Says that the ranks began before a checkpoint that the run has saved: nobody else can know.
void Supervisor::compare_with_checkpoints() {
  const std::int64_t first = generation_ ? generation_->first_step() : -1;
  if (first >= 0 && first < saved_step_)
    say("the ranks go on behind step ", first, ", though the checkpoint of step ", saved_step_,
        " was saved: it is gone or damaged, or they do not look for it");
  if (first >= 0) saved_step_ = -1;  // compared
}

void Supervisor::take_signals() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == sizeof info)
    end_by(static_cast<int>(info.ssi_signo));
}

/// Asks the ranks to end, as a closed terminal does, too. SIGINT kills them after a while, and the
/// other signals where there is a grace time.
void Supervisor::end_by(int signal) {
  const bool is_first = !is_ending();
  ending_signal_ = signal;
  // Ranks that make room stop already: one more signal would end them at once.
  if (!(is_first && is_making_room_ && signal != SIGINT))
    tell_ranks({MessageType::signal, {signal == SIGHUP ? SIGTERM : signal}});
  const auto now = Clock::now();
  if (signal == SIGINT)
    limit_ = is_first ? now + after_interrupt : now;
  else if (options_.grace && is_first)
    limit_ = now + *options_.grace;
  else
    return;
  kill_at_ = limit_;
}

void Supervisor::write(int stream, std::string_view text) {
  if (is_out_of_time() && !has_room(stream)) return;
  write_all(stream, text, [this] { return wait_for_reader(); });
}

/// What goes on while nobody reads the output. What agents say lies behind it, the ends of ranks
/// included.
/// @return false behind the time that a run which was asked to end has: the rest is lost.
bool Supervisor::wait_for_reader() {
  take_signals();
  hosts_.say_alive();
  if (give_up_at_) give_up_at_ = Clock::now() + after_kill;
  if (generation_) end_ranks_in_time();
  return !is_out_of_time();
}

void Supervisor::tell_ranks(const Message& message) {
  for (std::size_t host = 0; generation_ && host < hosts_.size(); ++host)
    if (generation_->is_running_on(host)) hosts_.link(host).send(message);
}

}  // namespace run
