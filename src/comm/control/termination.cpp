#include "comm/control/termination.hpp"

#include <atomic>
#include <csignal>
#include <cstdlib>

namespace lockstep::comm::control {
namespace {

std::atomic<bool> termination_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free, "signal handlers need it");

void note_termination(int) { termination_requested.store(true); }

}  // namespace

TerminationNotice::TerminationNotice() {
  struct sigaction present {};
  sigaction(SIGTERM, nullptr, &present);
  if ((present.sa_flags & SA_SIGINFO) || present.sa_handler != SIG_DFL) return;
  termination_requested = false;
  struct sigaction notice {};
  notice.sa_handler = note_termination;
  notice.sa_flags = SA_RESTART;
  is_installed_ = sigaction(SIGTERM, &notice, nullptr) == 0;
}

TerminationNotice::~TerminationNotice() {
  if (is_installed_) std::signal(SIGTERM, SIG_DFL);
}

bool TerminationNotice::requested() { return termination_requested.load(); }

void TerminationNotice::obey() {
  std::signal(SIGTERM, SIG_DFL);
  std::raise(SIGTERM);
  std::_Exit(128 + SIGTERM);  // only if the signal is blocked
}

}  // namespace lockstep::comm::control
