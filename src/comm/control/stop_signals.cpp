#include "comm/control/stop_signals.hpp"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <ctime>

#include <unistd.h>

#include "comm/control/termination.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::comm::control {
namespace {

using std::chrono::steady_clock;

constexpr std::array<int, 3> noted_signals{SIGTERM, SIGUSR1, SIGINT};
constexpr std::int64_t repetition_ns = 2'000'000'000;

std::atomic<bool> exists{false}, ends_itself{false}, is_leaving{false};
std::atomic<pid_t> looking_process{0};  // what it forks has the handlers, and nobody who looks
std::atomic<std::int64_t> first_at{0};
std::atomic<int> first_signal{0}, second_signal{0};
static_assert(std::atomic<std::int64_t>::is_always_lock_free, "signal handlers need it");

// --- what a handler may do
// ---------------------------------------------------------------------------------------

// steady_clock's time.
std::int64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

void write_line(const char* text) { (void)!write(STDERR_FILENO, text, std::strlen(text)); }

[[noreturn]] void end_at_once(int signal) {
  if (ends_itself.load() && !is_leaving.load())  // else it was said, or needs no word
    write_line(signal == SIGTERM ? "error: ended by a second SIGTERM\n"
                                 : "error: ended by a second SIGUSR1\n");
  _exit(128 + signal);
}

void note(int signal) {
  if (getpid() != looking_process.load()) return act_by_default(signal);
  const std::int64_t now = now_ns();
  std::int64_t never = 0;
  if (first_at.compare_exchange_strong(never, now)) return first_signal.store(signal);
  if (now - first_at.load() < repetition_ns) return;
  int none = 0;
  if (ends_itself.load() || is_leaving.load() ||
      !second_signal.compare_exchange_strong(none, signal))
    end_at_once(signal);
}

void interrupt(int signal) {
  write_line("interrupted\n");
  if (getpid() == 1)
    _exit(128 + signal);  // in a container: no default action ends the first process
  act_by_default(signal);
}

}  // namespace

StopSignals::StopSignals(bool is_alone) {
  LOCKSTEP_CHECK(!exists.exchange(true), InvalidArgument,
                 "this process has a StopRequest already; there can be one at a time");
  looking_process = getpid();
  first_at = 0;
  first_signal = second_signal = 0;
  ends_itself = is_alone;
  is_leaving = false;
  installed_ = is_alone ? noted_signals.size() : noted_signals.size() - 1;
  for (std::size_t i = 0; i < installed_; ++i) {
    struct sigaction action {};
    action.sa_handler = noted_signals[i] == SIGINT ? interrupt : note;
    action.sa_flags = SA_RESTART;
    sigaction(noted_signals[i], &action, &previous_[i]);
  }
}

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < installed_; ++i) sigaction(noted_signals[i], &previous_[i], nullptr);
  exists = false;
}

void StopSignals::keep() {
  installed_ = 0;
  is_leaving = true;
}

std::optional<StopSignals::Arrival> StopSignals::first() {
  const int signal = first_signal.load();
  if (!signal) return std::nullopt;
  return Arrival{signal, steady_clock::time_point(std::chrono::nanoseconds(first_at.load()))};
}

int StopSignals::second() { return second_signal.load(); }

const char* name_of_signal(int signal) {
  switch (signal) {
    case SIGTERM: return "SIGTERM";
    case SIGUSR1: return "SIGUSR1";
    case SIGINT: return "SIGINT";
    default: return "a signal";
  }
}

}  // namespace lockstep::comm::control
