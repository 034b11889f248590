#include "lockstep/comm/stop_request.hpp"

#include <algorithm>
#include <exception>

#include "comm/control/stop_signals.hpp"
#include "comm/session/session_state.hpp"
#include "comm/timeout.hpp"

namespace lockstep {

using comm::control::StopAgreement;
using comm::control::StopSignals;
using std::chrono::milliseconds;

namespace {

std::optional<milliseconds> grace_time(const StopRequestOptions& options) {
  LOCKSTEP_CHECK(!options.grace || *options.grace > milliseconds(0), InvalidArgument,
                 "the grace time must be positive, got ", options.grace->count(), " ms");
  return options.grace ? options.grace : comm::seconds_in_variable("LOCKSTEP_GRACE_TIME");
}

}  // namespace

struct StopRequest::State {
  State(Session& session, StopAgreement& agreement_of_session, const StopRequestOptions& options)
      : rank(session.rank()),
        is_alone(session.size() == 1),
        agreement(agreement_of_session),
        grace(grace_time(options)),
        signals(is_alone) {
    agreement.begin();
  }

  std::string self() const { return "rank " + std::to_string(rank); }

  // In a job of several ranks the control channel's thread does this.
  void look_for_signals() const {
    if (const auto arrival = StopSignals::first())
      agreement.request(self() + " got " + comm::control::name_of_signal(arrival->signal),
                        arrival->at);
  }

  void say(std::int64_t step) {
    if (rank == 0 && !has_said)
      comm::print_error("stopping after step " + std::to_string(step) + ": " + agreement.reason());
    has_said = true;
  }

  const int rank;
  const bool is_alone;
  StopAgreement& agreement;
  const std::optional<milliseconds> grace;
  bool has_said = false;
  StopSignals signals;
};

StopRequest::StopRequest(Session& session, const StopRequestOptions& options)
    : state_(std::make_unique<State>(session, session.state_->stop_agreement(), options)) {}

// Whoever sent a signal learns why nothing has come of it.
StopRequest::~StopRequest() {
  if (state_->has_said) state_->signals.keep();
  if (state_->has_said || state_->rank != 0 || std::uncaught_exceptions() > 0) return;
  if (state_->is_alone) state_->look_for_signals();
  const std::string reason = state_->agreement.reason();
  if (!reason.empty()) comm::print_error("not stopping, all steps are done: " + reason);
}

bool StopRequest::after(std::int64_t step) {
  if (state_->is_alone) state_->look_for_signals();
  if (!state_->agreement.after(step)) return false;
  state_->say(step);
  return true;
}

void StopRequest::request(const std::string& reason) {
  state_->agreement.request(state_->self() + " asked for it: " + reason);
}

bool StopRequest::is_requested() const {
  if (state_->is_alone) state_->look_for_signals();
  return state_->agreement.since().has_value();
}

std::optional<milliseconds> StopRequest::time_left() const {
  if (state_->is_alone) state_->look_for_signals();
  const auto since = state_->agreement.since();
  if (!since || !state_->grace) return std::nullopt;
  const auto passed =
      std::chrono::duration_cast<milliseconds>(StopAgreement::Clock::now() - *since);
  return std::max(*state_->grace - passed, milliseconds(0));
}

}  // namespace lockstep
