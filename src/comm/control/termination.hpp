#pragma once

namespace lockstep::comm::control {

/// Notices SIGTERM, as long as the program has not set its own handler. A launcher that lost a rank
/// ends the others with SIGTERM at once; held back for a moment, they can still say which was lost.
class TerminationNotice {
 public:
  TerminationNotice();
  TerminationNotice(const TerminationNotice&) = delete;
  TerminationNotice& operator=(const TerminationNotice&) = delete;
  ~TerminationNotice();

  /// True once SIGTERM has arrived.
  static bool requested();
  /// Does what SIGTERM does by default.
  [[noreturn]] static void obey();

 private:
  bool is_installed_ = false;
};

}  // namespace lockstep::comm::control
