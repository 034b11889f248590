#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>

#include "comm/control/termination.hpp"
#include "comm/group_registry.hpp"
#include "comm/run_progress.hpp"
#include "comm/session/session_state.hpp"
#include "core/failure_place.hpp"
#include "lockstep/comm/errors.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/observe/log.hpp"

// What a session does when its job fails, here or on another rank.

namespace lockstep {

using comm::print_error;
using comm::control::JobFailure;
using comm::control::MessageType;
using comm::control::TerminationNotice;

namespace {

std::string with_rank(int rank, int size, const std::string& text) {
  return (size > 1 ? "[rank " + std::to_string(rank) + "] error: " : "error: ") + text;
}

/// " (sample 3 of epoch 0; after 41 steps)", or what of that is known of the exception that is
/// being handled.
std::string where() {
  std::string place = failure_place();
  const std::int64_t steps = comm::last_step();
  if (steps >= 0)
    place +=
        detail::concat(place.empty() ? "" : "; ", "after ", steps, steps == 1 ? " step" : " steps");
  return place.empty() ? "" : " (" + place + ")";
}

// What a rank did last: of a stall, each rank's tells who is behind; of a disagreement, where the
// ranks parted. At once, so that no other rank's lines come between.
void print_progress(int rank, comm::GroupRegistry& groups) {
  const std::string begin = "[rank " + std::to_string(rank) + "] ";
  std::string text;
  for (const std::string& group : groups.describe_progress()) {
    lockstep::detail::TextReader lines(group);
    for (std::string line; std::getline(lines, line);)
      text += (text.empty() ? "" : "\n") + begin + line;
  }
  if (!text.empty()) print_error(text);
}

}  // namespace

JobFailure comm::describe_current_exception() {
  try {
    throw;
  } catch (const comm::PeerFailure& error) {
    return {.text = error.what(), .is_consequence = true};
  } catch (const Timeout& error) {
    return {.text = error.what(), .type = MessageType::stalled};
  } catch (const comm::Mismatch& error) {
    return {.text = error.what(), .type = MessageType::stalled};
  } catch (const InvalidArgument& error) {
    return {error.what() + where(), 2};
  } catch (const Unsupported& error) {
    return {error.what() + where(), 2};
  } catch (const CorruptData& error) {
    return {error.what() + where(), 2};
  } catch (const std::system_error& error) {
    const bool is_of_threads =  // which say nothing else
        error.code() == std::errc::resource_unavailable_try_again &&
        error.what() == error.code().message();
    return {error.what() + where() +
            (is_of_threads ? ": no thread can be started; raise the limit on processes and threads "
                             "(ulimit -u, pids.max of the container)"
                           : "")};
  } catch (const std::exception& error) {
    return {error.what() + where()};
  } catch (...) {
    return {"an exception that is no std::exception" + where()};
  }
}

void comm::print_error(const std::string& text) { std::fprintf(stderr, "%s\n", text.c_str()); }

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
      if (failure.type != MessageType::failed)
        print_progress(bootstrap->rank(), *bootstrap->groups());
      bootstrap->groups()->fail_all(failure.text);
    }).detach();
  } catch (const std::system_error&) {
    // No thread is to be had; the process ends all the same.
  }
}

// Nothing ends: a rank may save, or read, for as long as it likes. On a thread of its own, as
// above.
void Session::State::on_stall(const std::string& text) {
  try {
    std::thread([text, rank = bootstrap->rank(), groups = bootstrap->groups()] {
      if (!text.empty()) LOCKSTEP_LOG(warning, text);
      print_progress(rank, *groups);
    }).detach();
  } catch (const std::system_error&) {
    // No thread is to be had; the ranks go on.
  }
}

void Session::State::fail(const JobFailure& failure) noexcept {
  int exit_code = failure.exit_code;
  if (is_forked()) {
    print_error("a process that the rank forked: " + failure.text);
    std::_Exit(exit_code);
  }
  try {
    std::fflush(stdout);
    JobFailure named = failure;
    named.text = with_rank(bootstrap->rank(), bootstrap->size(), failure.text);
    const bool is_said = control_ && control_->report(named);
    if (!is_said) {
      print_error(named.text);
      if (failure.type != MessageType::failed)
        print_progress(bootstrap->rank(), *bootstrap->groups());
    }
    if (const auto first = control_ ? control_->failure() : std::nullopt)
      exit_code = first->exit_code;
    // The others get the time to hear it; rank 0 then ends the job, unless it is silent.
    const bool ends_job = bootstrap->rank() == 0 || (control_ && control_->hub_is_silent());
    if (bootstrap->size() > 1)
      std::this_thread::sleep_for(std::chrono::milliseconds(ends_job ? 300 : 2500));
  } catch (...) {
    print_error(failure.text);
  }
  bootstrap->end_job(exit_code);
  std::abort();  // not reached; GCC overlooks [[noreturn]] on virtual functions
}

void Session::State::on_terminate() {
  State* state = current.load();
  JobFailure failure = std::current_exception() ? comm::describe_current_exception()
                                                : JobFailure{"the program called std::terminate"};
  if (state && !state->is_forked()) {
    failure.text = "uncaught exception: " + failure.text;
    failure.exit_code = 1;
    state->fail(failure);
  }
  print_error("error: " + failure.text);
  std::abort();
}

}  // namespace lockstep
