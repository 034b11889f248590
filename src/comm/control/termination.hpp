#pragma once

#include <array>

namespace lockstep::comm::control {

/// Does what a signal does by default, as soon as the handler returns that calls this.
void act_by_default(int signal);

/// Notices SIGTERM and SIGINT, as long as the program has not set its own handlers. A launcher that
/// lost a rank ends the others with SIGTERM at once, and Ctrl-C reaches all ranks of a shell; held
/// back for a moment, they can still say what happened.
class TerminationNotice {
 public:
  TerminationNotice();
  TerminationNotice(const TerminationNotice&) = delete;
  TerminationNotice& operator=(const TerminationNotice&) = delete;
  /// Gives the signals their default actions back, and obeys one that arrived.
  ~TerminationNotice();

  /// The signal that arrived, or 0.
  static int arrived();
  /// Does what the signal that arrived does by default.
  [[noreturn]] static void obey();

 private:
  std::array<bool, 2> is_installed_{};
};

}  // namespace lockstep::comm::control
