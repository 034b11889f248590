#include "comm/control/termination.hpp"

#include <atomic>
#include <csignal>
#include <cstdlib>

#include <unistd.h>

namespace lockstep::comm::control {
namespace {

constexpr std::array<int, 2> noticed_signals{SIGTERM, SIGINT};

std::atomic<int> arrived_signal{0};
static_assert(std::atomic<int>::is_always_lock_free, "signal handlers need it");

/// A process that this one forked has the handler, and nobody who looks.
std::atomic<pid_t> noticing_process{0};

void note_arrival(int signal) {
  if (getpid() == noticing_process.load()) return arrived_signal.store(signal);
  act_by_default(signal);
}

bool install(int signal) {
  struct sigaction present {};
  sigaction(signal, nullptr, &present);
  if ((present.sa_flags & SA_SIGINFO) || present.sa_handler != SIG_DFL) return false;
  struct sigaction notice {};
  notice.sa_handler = note_arrival;
  notice.sa_flags = SA_RESTART;
  return sigaction(signal, &notice, nullptr) == 0;
}

// Unless a StopRequest has put its handler there since.
void uninstall(int signal) {
  struct sigaction present {};
  sigaction(signal, nullptr, &present);
  if (!(present.sa_flags & SA_SIGINFO) && present.sa_handler == note_arrival)
    std::signal(signal, SIG_DFL);
}

}  // namespace

void act_by_default(int signal) {
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

TerminationNotice::TerminationNotice() {
  arrived_signal = 0;
  noticing_process = getpid();
  for (std::size_t i = 0; i < noticed_signals.size(); ++i)
    is_installed_[i] = install(noticed_signals[i]);
}

TerminationNotice::~TerminationNotice() {
  for (std::size_t i = 0; i < noticed_signals.size(); ++i)
    if (is_installed_[i]) uninstall(noticed_signals[i]);
  if (arrived()) obey();
}

int TerminationNotice::arrived() { return arrived_signal.load(); }

void TerminationNotice::obey() {
  const int signal = arrived();
  act_by_default(signal);
  std::_Exit(128 + signal);  // only if the signal is blocked
}

}  // namespace lockstep::comm::control
