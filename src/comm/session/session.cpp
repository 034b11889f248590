#include "lockstep/comm/session.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>

#include "comm/agreed_error.hpp"
#include "comm/backends.hpp"
#include "comm/control/control_channel.hpp"
#include "comm/control/heartbeat.hpp"
#include "comm/control/termination.hpp"
#include "comm/group_registry.hpp"
#include "comm/session/device_choice.hpp"
#include "lockstep/comm/errors.hpp"
#include "lockstep/observe/log.hpp"
#include "runtime/background_failure.hpp"
#include "runtime/device_identity.hpp"

namespace lockstep {
namespace {

using comm::SignatureComparison;
using comm::control::ControlChannel;
using comm::control::JobFailure;
using comm::control::MessageType;
using comm::control::TerminationNotice;

std::string wanted_device(int argc, const char* const* argv, const SessionOptions& options) {
  if (!options.device.empty()) return options.device;
  constexpr std::string_view flag = "--device";
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == flag && i + 1 < argc) return argv[i + 1];
    if (argument.starts_with(flag) && argument.substr(flag.size()).starts_with('='))
      return std::string(argument.substr(flag.size() + 1));
  }
  return "auto";
}

// What an exception in flight says, and the program's exit code for it.
JobFailure describe_current_exception() {
  try {
    throw;
  } catch (const comm::PeerFailure& error) {
    return {.text = error.what(), .is_consequence = true};
  } catch (const Timeout& error) {
    return {.text = error.what(), .type = MessageType::stalled};
  } catch (const InvalidArgument& error) {
    return {error.what(), 2};
  } catch (const Unsupported& error) {
    return {error.what(), 2};
  } catch (const std::exception& error) {
    return {error.what()};
  } catch (...) {
    return {"an exception that is no std::exception"};
  }
}

void print_error(const std::string& text) { std::fprintf(stderr, "%s\n", text.c_str()); }

std::string with_rank(int rank, int size, const std::string& text) {
  return (size > 1 ? "[rank " + std::to_string(rank) + "] error: " : "error: ") + text;
}

}  // namespace

struct Session::State {
  explicit State(const SessionOptions& session_options)
      : options(session_options), bootstrap(comm::make_bootstrap(options.bootstrap)) {
    set_log_rank(bootstrap->rank(), bootstrap->size());
  }
  ~State();

  void join(const std::string& wanted);
  void configure(const std::string& wanted);
  void connect(std::chrono::milliseconds heartbeat_timeout);
  void leave() noexcept;
  void on_job_failure(const JobFailure& failure);
  [[noreturn]] void fail(const JobFailure& failure) noexcept;
  void end_groups(const JobFailure& failure);
  void print_progress() const;
  [[noreturn]] static void on_terminate();

  SessionOptions options;
  std::unique_ptr<comm::Bootstrap> bootstrap;
  Device device = cpu;
  CommunicatorPtr world;
  mutable std::mutex abort_mutex;  // guards `abortable`, which the control thread uses
  Communicator* abortable = nullptr;
  comm::ComparisonPtr comparison;
  std::optional<ControlChannel> control;
  std::terminate_handler previous_handler = nullptr;

  static std::atomic<State*> current;
};

std::atomic<Session::State*> Session::State::current{nullptr};

// An error of this rank alone leaves the control channel to tell the others of it.
void Session::State::join(const std::string& wanted) {
  try {
    configure(wanted);
  } catch (const comm::AgreedError&) {
    control.reset();
    throw;
  }
}

void Session::State::configure(const std::string& wanted) {
  std::chrono::milliseconds heartbeat_timeout{};
  comm::agree_on_errors(*bootstrap, "options of the session", [&] {
    if (!options.refusal.empty()) throw InvalidArgument(options.refusal);
    heartbeat_timeout = comm::control::heartbeat_timeout(options.heartbeat_timeout);
    State* none = nullptr;
    LOCKSTEP_CHECK(current.compare_exchange_strong(none, this), InvalidArgument,
                   "this process has a Session already; there can be one at a time");
    LOCKSTEP_CHECK(options.threads >= 0, InvalidArgument,
                   "the number of threads must not be negative, got ", options.threads);
  });
  previous_handler = std::set_terminate(&State::on_terminate);
  connect(heartbeat_timeout);
  device = comm::choose_device(*bootstrap, wanted);
  if (device.is_cuda()) set_home_cuda_device(device.index);
  comm::choose_threads(*bootstrap, options.threads);
  world = comm::make_communicator(*bootstrap, device, options.communicator, comparison);
  const std::lock_guard lock(abort_mutex);
  abortable = world.get();
}

void Session::State::connect(std::chrono::milliseconds heartbeat_timeout) {
  comm::GroupRegistry& groups = *bootstrap->groups();
  const auto send = [this](const std::string& batch) { control->send_signatures(batch); };
  comparison = make_intrusive<SignatureComparison>(
      bootstrap->rank() == 0 ? SignatureComparison::Send{} : send,
      [this](const std::string& message) { control->fail_job({"error: " + message}); });
  control.emplace(*bootstrap,
                  comm::control::ControlHandlers{
                      .on_failure = [this](const JobFailure& failure) { on_job_failure(failure); },
                      .on_departure = [&groups](const std::string& news) { groups.receive(news); },
                      .on_signatures = [this](std::string_view batch) { comparison->take(batch); }},
                  heartbeat_timeout);
  static_assert(SignatureComparison::max_batch <= comm::control::max_text);
  groups.set_comparison(comparison);
  groups.set_announcer([this](const std::string& news) { control->announce_departure(news); });
}

Session::State::~State() {
  State* self = this;
  if (current.compare_exchange_strong(self, nullptr)) std::set_terminate(previous_handler);
  {
    const std::lock_guard lock(abort_mutex);
    abortable = nullptr;
  }
  bootstrap->groups()->leave_all();
  world.reset();
  bootstrap->groups()->set_announcer(nullptr);
  // What the ranks called last, rank 0 compares while they say goodbye.
  if (control) control->leave();
  if (comparison) comparison->close();
  control.reset();
}

// A failure that nobody waited for, such as that of the last collective, must not pass for success.
void Session::State::leave() noexcept {
  if (std::uncaught_exceptions() > 0) return;
  try {
    if (comparison) comparison->flush();
    {
      const std::lock_guard lock(abort_mutex);
      abortable = nullptr;
    }
    bootstrap->groups()->leave_all();  // waits for what is under way
    world.reset();
    raise_background_failure();
  } catch (...) {
    fail(describe_current_exception());
  }
}

// Runs on the control channel's thread. The main thread may be stuck, so after a moment in which it
// can unwind, the process ends from here.
void Session::State::on_job_failure(const JobFailure& failure) {
  if (failure.type == MessageType::lost)
    print_error(with_rank(bootstrap->rank(), bootstrap->size(), failure.text));
  else if (bootstrap->rank() == 0)
    print_error(failure.text);
  end_groups(failure);
  const auto grace_period = std::chrono::milliseconds(bootstrap->rank() == 0 ? 500 : 2000);
  const auto deadline = std::chrono::steady_clock::now() + grace_period;
  while (std::chrono::steady_clock::now() < deadline) {
    if (TerminationNotice::arrived()) TerminationNotice::obey();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  bootstrap->end_job(failure.exit_code);
}

// On a thread of its own, for which the end of the process does not wait: it needs mutexes, and a
// library may hold up whoever has them.
void Session::State::end_groups(const JobFailure& failure) {
  try {
    std::thread([this, failure] {
      if (failure.type != MessageType::failed) print_progress();
      bootstrap->groups()->fail_all(failure.text);
    }).detach();
  } catch (const std::system_error&) {
    // No thread is to be had; the process ends all the same.
  }
}

// What this rank did last: of a stall, each rank's tells who is behind.
void Session::State::print_progress() const {
  const std::lock_guard lock(abort_mutex);
  if (abortable)
    print_error("[rank " + std::to_string(bootstrap->rank()) + "] " +
                abortable->describe_progress());
}

void Session::State::fail(const JobFailure& failure) noexcept {
  int exit_code = failure.exit_code;
  try {
    std::fflush(stdout);
    JobFailure named = failure;
    named.text = with_rank(bootstrap->rank(), bootstrap->size(), failure.text);
    const bool is_said = control && control->report(named);
    if (!is_said) {
      print_error(named.text);
      if (failure.type != MessageType::failed) print_progress();
    }
    if (const auto first = control ? control->failure() : std::nullopt)
      exit_code = first->exit_code;
    // The others get the time to hear it; rank 0 then ends the job.
    if (bootstrap->size() > 1)
      std::this_thread::sleep_for(std::chrono::milliseconds(bootstrap->rank() == 0 ? 300 : 2500));
  } catch (...) {
    print_error(failure.text);
  }
  bootstrap->end_job(exit_code);
  std::abort();  // not reached; GCC overlooks [[noreturn]] on virtual functions
}

void Session::State::on_terminate() {
  State* state = current.load();
  JobFailure failure = std::current_exception() ? describe_current_exception()
                                                : JobFailure{"the program called std::terminate"};
  if (state) {
    failure.text = "uncaught exception: " + failure.text;
    failure.exit_code = 1;
    state->fail(failure);
  }
  print_error("error: " + failure.text);
  std::abort();
}

Session::Session(int argc, const char* const* argv, const SessionOptions& options)
    : state_(std::make_unique<State>(options)) {
  state_->join(wanted_device(argc, argv, options));
}

Session::Session(std::unique_ptr<State> state) : state_(std::move(state)) {}

Session::~Session() {
  if (state_) state_->leave();
}

int Session::rank() const { return state_->bootstrap->rank(); }
int Session::size() const { return state_->bootstrap->size(); }
int Session::local_rank() const { return state_->bootstrap->local_rank(); }
int Session::local_size() const { return state_->bootstrap->local_size(); }
Device Session::device() const { return state_->device; }
const CommunicatorPtr& Session::world() const { return state_->world; }
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
    const JobFailure failure = describe_current_exception();
    print_error("error: " + failure.text);
    return failure.exit_code;
  }
  try {
    state->join(wanted_device(argc, argv, options));
  } catch (const comm::AgreedError&) {
    const JobFailure failure = describe_current_exception();
    if (state->bootstrap->rank() == 0) print_error("error: " + failure.text);
    return failure.exit_code;
  } catch (...) {
    state->fail(describe_current_exception());
  }
  Session session(std::move(state));
  try {
    return body(session);
  } catch (...) {
    session.state_->fail(describe_current_exception());
  }
}

}  // namespace lockstep
