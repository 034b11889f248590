#include "comm/session/session_state.hpp"

#include <cstdlib>
#include <utility>

#include "comm/agreed_error.hpp"
#include "comm/backends.hpp"
#include "comm/control/heartbeat.hpp"
#include "comm/group_registry.hpp"
#include "comm/session/device_choice.hpp"
#include "comm/timeout.hpp"
#include "lockstep/comm/stop_request.hpp"
#include "lockstep/observe/log.hpp"
#include "runtime/background_failure.hpp"
#include "runtime/device_identity.hpp"

// How a session joins its job and leaves it.

namespace lockstep {

using comm::SignatureComparison;

std::atomic<Session::State*> Session::State::current{nullptr};

Session::State::State(const SessionOptions& session_options)
    : options(session_options), bootstrap(comm::make_bootstrap(options.bootstrap)) {
  set_log_rank(bootstrap->rank(), bootstrap->size());
}

// An error of this rank alone leaves the control channel to tell the others of it.
void Session::State::join(const std::string& wanted) {
  try {
    configure(wanted);
    end_with_the_program();
  } catch (const comm::AgreedError&) {
    control_.reset();
    throw;
  }
}

void Session::State::configure(const std::string& wanted) {
  std::chrono::milliseconds heartbeat_timeout{};
  std::chrono::seconds stall_time{};
  comm::agree_on_errors(*bootstrap, "options of the session", [&] {
    if (!options.refusal.empty()) throw InvalidArgument(options.refusal);
    heartbeat_timeout = comm::control::heartbeat_timeout(options.heartbeat_timeout);
    stall_time = comm::control::stall_time();
    options.communicator = comm::with_timeout(options.communicator);
    State* none = nullptr;
    LOCKSTEP_CHECK(current.compare_exchange_strong(none, this), InvalidArgument,
                   "this process has a Session already; there can be one at a time");
    LOCKSTEP_CHECK(options.threads >= 0, InvalidArgument,
                   "the number of threads must not be negative, got ", options.threads);
  });
  previous_handler_ = std::set_terminate(&State::on_terminate);
  connect(heartbeat_timeout, stall_time);
  device = comm::choose_device(*bootstrap, wanted);
  if (device.is_cuda()) set_home_cuda_device(device.index);
  if (device.is_cpu()) comm::choose_instructions(*bootstrap);
  comm::choose_threads(*bootstrap, options.threads);
  world = comm::make_communicator(*bootstrap, device, options.communicator, comparison_);
}

void Session::State::connect(std::chrono::milliseconds heartbeat_timeout,
                             std::chrono::seconds stall_time) {
  comm::GroupRegistry& groups = *bootstrap->groups();
  const auto send = [this](const std::string& batch) { control_->send_signatures(batch); };
  comparison_ = make_intrusive<SignatureComparison>(
      bootstrap->rank() == 0 ? SignatureComparison::Send{} : send,
      [this](const std::string& message) {
        control_->fail_job(
            {.text = "error: " + message, .type = comm::control::MessageType::stalled});
      });
  control_.emplace(
      *bootstrap,
      comm::control::ControlHandlers{
          .on_failure = [this](const JobFailure& failure) { on_job_failure(failure); },
          .on_news = [&groups](const std::string& news) { groups.receive(news); },
          .on_signatures = [this](int rank,
                                  std::string_view batch) { comparison_->take(batch, rank); },
          .on_heartbeat = [&groups] { groups.look_after_all(); },
          .running_for = [&groups] { return groups.longest_running(); },
          .on_stall = [this](const std::string& text) { on_stall(text); }},
      heartbeat_timeout, stall_time);
  static_assert(SignatureComparison::max_batch <= comm::control::max_text);
  groups.set_comparison(comparison_);
  groups.set_announcer([this](const std::string& news) { control_->announce(news); });
}

Session::State::~State() { close(); }

void Session::State::close() noexcept {
  if (std::exchange(is_closed_, true)) return;
  State* self = this;
  if (current.compare_exchange_strong(self, nullptr)) std::set_terminate(previous_handler_);
  bootstrap->groups()->leave_all();
  world.reset();
  bootstrap->groups()->set_announcer(nullptr);
  // What the ranks called last, rank 0 compares while they say goodbye.
  if (control_) control_->leave();
  if (comparison_) comparison_->close();
  control_.reset();
}

// A failure that nobody waited for, such as that of the last collective, must not pass for success.
void Session::State::leave() noexcept {
  if (is_closed_ || std::uncaught_exceptions() > 0) return;
  try {
    if (comparison_) comparison_->flush();
    bootstrap->groups()->leave_all();  // waits for what is under way
    world.reset();
    raise_background_failure();
  } catch (...) {
    fail(comm::describe_current_exception());
  }
}

// Others may wait for a rank that ends with another code than 0, unless all have agreed to stop.
bool Session::State::is_good_order(int exit_code) const {
  if (exit_code == 0 || bootstrap->size() == 1) return true;
  return exit_code == StopRequest::exit_code && control_ && control_->stop().has_stopped();
}

// --- std::exit
// -------------------------------------------------------------------------------------

// Registered once the libraries that the session uses have done so: what came last goes first.
void Session::State::end_with_the_program() {
  static const int registered = ::on_exit(&State::on_exit, nullptr);
  LOCKSTEP_CHECK(registered == 0, Error, "the system takes no more functions for std::exit");
}

// The session's owner is on a stack that nobody unwinds. Other threads may have called std::exit,
// or forked processes: then the connections end without a word.
void Session::State::on_exit(int exit_code, void*) noexcept {
  State* const state = current.load();
  if (!state || state->thread_ != std::this_thread::get_id() || state->is_forked()) return;
  if (!state->is_good_order(exit_code))
    state->fail({"the program called std::exit(" + std::to_string(exit_code) + ")", exit_code});
  state->leave();
  state->close();
  state->bootstrap.reset();
}

}  // namespace lockstep
