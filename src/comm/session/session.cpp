#include "lockstep/comm/session.hpp"

#include <string>
#include <string_view>

#include "comm/agreed_error.hpp"
#include "comm/session/session_state.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

std::string wanted_device(int argc, const char* const* argv, const SessionOptions& options) {
  if (!options.device.empty()) return options.device;
  constexpr std::string_view flag = "--device";
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == flag) {
      LOCKSTEP_CHECK(i + 1 < argc, InvalidArgument, flag,
                     " needs a value behind it: cpu, cuda, cuda:N or auto");
      return argv[i + 1];
    }
    if (argument.starts_with(flag) && argument.substr(flag.size()).starts_with('='))
      return std::string(argument.substr(flag.size() + 1));
  }
  return "auto";
}

}  // namespace

Session::Session(int argc, const char* const* argv, const SessionOptions& options)
    : state_(std::make_unique<State>(options)) {
  state_->join(wanted_device(argc, argv, options));
}

Session::Session(std::unique_ptr<State> state) : state_(std::move(state)) {}

// What a forked process has of the threads and connections is a copy that it cannot end.
Session::~Session() {
  if (state_ && state_->is_forked())
    static_cast<void>(state_.release());
  else if (state_)
    state_->leave();
}

int Session::rank() const { return state_->bootstrap->rank(); }
int Session::size() const { return state_->bootstrap->size(); }
int Session::local_rank() const { return state_->bootstrap->local_rank(); }
int Session::local_size() const { return state_->bootstrap->local_size(); }
Device Session::device() const { return state_->device; }
const CommunicatorPtr& Session::world() const { return state_->world; }
const CommunicatorPtr& Session::host_world() {
  if (state_->device.is_cpu()) return state_->world;
  if (!state_->host_world) {
    comm::CommunicatorOptions options = state_->options.communicator;
    options.backend.clear();
    state_->host_world = comm::make_communicator(*state_->bootstrap, cpu, options);
  }
  return state_->host_world;
}
comm::Bootstrap& Session::bootstrap() const { return *state_->bootstrap; }

void Session::fail(const std::string& message, int exit_code) noexcept {
  state_->fail({message, exit_code});
}

int Session::run(int argc, const char* const* argv, const std::function<int(Session&)>& body,
                 const SessionOptions& options) {
  std::unique_ptr<State> state;
  try {
    state = std::make_unique<State>(options);
  } catch (...) {  // before the ranks have met, each can only speak for itself
    const comm::control::JobFailure failure = comm::describe_current_exception();
    comm::print_error("error: " + failure.text);
    return failure.exit_code;
  }
  try {
    state->join(wanted_device(argc, argv, options));
  } catch (const comm::AgreedError&) {
    const comm::control::JobFailure failure = comm::describe_current_exception();
    if (state->bootstrap->rank() == 0) comm::print_error("error: " + failure.text);
    return failure.exit_code;
  } catch (...) {
    state->fail(comm::describe_current_exception());
  }
  Session session(std::move(state));
  try {
    const int code = body(session);
    if (session.state_->is_forked() || session.state_->is_good_order(code)) return code;
    // As std::exit(code) is.
    session.fail("the program returned " + std::to_string(code) + " from Session::run", code);
  } catch (...) {
    session.state_->fail(comm::describe_current_exception());
  }
}

}  // namespace lockstep
