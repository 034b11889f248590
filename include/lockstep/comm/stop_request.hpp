#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

/// @file
/// How a job that is preempted stops: all ranks after the same step.

namespace lockstep {

class Session;

/// Options of a stop request.
struct StopRequestOptions {
  /// How long after the signal the job may still run, as the scheduler grants it; `time_left`
  /// counts it down, nothing else does. Default: LOCKSTEP_GRACE_TIME in seconds, else unknown.
  std::optional<std::chrono::milliseconds> grace = std::nullopt;
};

/// While it lives, SIGTERM and SIGUSR1 ask the job to stop, where they would end it otherwise. One
/// to any rank is enough: the ranks agree on a step that none has completed yet, over the control
/// channel, without a collective, and `after` returns true on each rank after that step.
///
/// @code
/// ls::StopRequest stop(session);
/// for (std::int64_t step = first; step < last; ++step) {
///   train(step);
///   if (stop.after(step)) {
///     save(step);
///     return ls::StopRequest::exit_code;
///   }
/// }
/// @endcode
///
/// A second signal to the same process, two seconds or more after the first, ends the job at once
/// with code 128 + signal, also once the job has stopped; what comes sooner is the same request.
/// SIGINT (Ctrl-C) ends it as without a stop request. Make it right behind the session: until then
/// signals end the job. One at a time; behind its end another one may follow, which counts anew.
class StopRequest {
 public:
  /// What a program returns that has stopped, saved, and wants to be started again: EX_TEMPFAIL of
  /// sysexits.h. Session::run takes it for an end in good order where `after` has returned true.
  static constexpr int exit_code = 75;

  /// @param session must outlive it.
  /// @throws InvalidArgument for a grace time that is not positive, and if there is one already.
  explicit StopRequest(Session& session, const StopRequestOptions& options = {});
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;
  ~StopRequest();

  /// To be called on every rank after each step, by the same thread. Costs some nanoseconds as long
  /// as nobody has asked; then it waits, once, until all ranks have said how far they are.
  /// @param step its number, the same on all ranks: 0 or more, and growing, over all epochs.
  /// @return true if the job is to stop after this step: on all ranks for the same ones. Rank 0
  /// says so, and why, in one line. @throws InvalidArgument
  bool after(std::int64_t step);

  /// Asks as a signal does, on one rank or on several; from any thread.
  /// @param reason for people, such as "the time limit of 3 h"
  void request(const std::string& reason = "the program");

  /// Whether this rank knows that the job is to stop; `after` says where.
  bool is_requested() const;

  /// How much of the grace time is left since the signal, 0 or more; none as long as this rank
  /// knows of no request, or no grace time. Ranks differ by some milliseconds: one should decide.
  std::optional<std::chrono::milliseconds> time_left() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
