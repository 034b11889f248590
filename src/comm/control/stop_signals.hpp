#pragma once

#include <array>
#include <chrono>
#include <csignal>
#include <optional>

namespace lockstep::comm::control {

/// While it lives, SIGTERM and SIGUSR1 are only noted; it replaces other handlers, and gives them
/// back at its end. One at a time.
class StopSignals {
 public:
  struct Arrival {
    int signal = 0;
    std::chrono::steady_clock::time_point at;
  };

  /// @param is_alone nobody looks for a second signal: the handler itself ends the process then,
  /// and says that SIGINT interrupted it.
  /// @throws InvalidArgument if there is one already.
  explicit StopSignals(bool is_alone);
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  /// Leaves the handlers where they are, for the rest of the process: it has stopped and is on its
  /// way out, and who tells it so only now wants no more. A second signal ends it,
  /// without a word: launchers send one to ranks that take longer than the first to leave.
  void keep();

  /// The first signal since the last one was made.
  static std::optional<Arrival> first();
  /// The next one, or 0. What follows the first within two seconds is the same request, of
  /// whichever kind: coreutils' timeout sends a signal to a process and to its group, schedulers
  /// send one to each step of a job and to its script, which may hand it on, or SIGTERM behind
  /// SIGUSR1.
  static int second();

 private:
  std::array<struct sigaction, 3> previous_{};
  std::size_t installed_ = 0;
};

/// "SIGTERM"
const char* name_of_signal(int signal);

}  // namespace lockstep::comm::control
