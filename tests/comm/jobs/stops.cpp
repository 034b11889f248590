#include "comm/jobs/stops.hpp"

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include <unistd.h>

#include "comm/jobs/values.hpp"
#include "lockstep/comm/stop_request.hpp"

namespace lockstep::testing {
namespace {

using std::chrono::milliseconds;

/// JOB_EVENT is "SIGNAL" (the culprit gets it), "SIGNAL-to-all", "SIGNAL-to-launcher", "request",
/// or nothing; JOB_WHEN "step" (in step 20), "start" (before the first) or "end" (after the last).
/// JOB_COUPLED=0 leaves out the collective of each step, and makes higher ranks slower.
/// JOB_SLOW: so many ms the last rank takes for step 21. JOB_SAVE: for the checkpoint.
/// JOB_DEATH=1: the last rank is killed in step 21.
/// JOB_LATE=1: every rank gets SIGTERM behind all this.
/// JOB_REPEAT: so many ms later the event comes once more, or JOB_THEN. JOB_RETURN: another exit
/// code.
class Plan {
 public:
  explicit Plan(const Session& session) : session_(session) {}

  bool coupled() const { return number_from("JOB_COUPLED", 1) != 0; }
  int steps() const { return number_from("JOB_STEPS", 10'000); }

  void step(int step) const {
    const bool is_last = session_.rank() == session_.size() - 1;
    const int slow = is_last && step == 21 ? number_from("JOB_SLOW", 0) : 0;
    std::this_thread::sleep_for(milliseconds(slow + (coupled() ? 2 : 2 + 5 * session_.rank())));
    if (step == 20) at("step");
    if (is_last && step == 21 && number_from("JOB_DEATH", 0) != 0) std::raise(SIGKILL);
  }

  /// Does the event, if it is its time.
  void at(const std::string& when) const {
    if (when == word("JOB_WHEN", "step")) happen();
  }

  void request_with(StopRequest& stop) { stop_ = &stop; }

 private:
  static std::string word(const char* variable, const char* otherwise) {
    const char* text = std::getenv(variable);
    return text ? text : otherwise;
  }

  void happen() const {
    const std::string event = word("JOB_EVENT", "");
    const bool is_culprit = session_.rank() == culprit(session_);
    if (event.empty() || (!is_culprit && event.find("-to-all") == std::string::npos)) return;
    note_event();
    cause(event);
    const int repeat = number_from("JOB_REPEAT", -1);
    if (repeat < 0) return;
    std::thread([this, event, repeat] {
      std::this_thread::sleep_for(milliseconds(repeat));
      cause(word("JOB_THEN", event.c_str()));
    }).detach();
  }

  void cause(const std::string& event) const {
    if (event == "request") return stop_->request("its time limit");
    const int signal = event.starts_with("TERM")  ? SIGTERM
                       : event.starts_with("INT") ? SIGINT
                                                  : SIGUSR1;
    kill(event.find("-to-launcher") == std::string::npos ? getpid() : getppid(), signal);
  }

  const Session& session_;
  StopRequest* stop_ = nullptr;
};

int save(const Session& session, const StopRequest& stop, int step) {
  const auto left = stop.time_left();
  std::printf("rank %d stops after step %d, %s\n", session.rank(), step,
              !left                        ? "no limit"
              : *left > milliseconds(8000) ? "in time"
                                           : "late");
  std::fflush(stdout);
  std::this_thread::sleep_for(milliseconds(number_from("JOB_SAVE", 0)));
  return number_from("JOB_RETURN", StopRequest::exit_code);
}

int train(Session& session) {
  const Values values(session, 1000);
  Plan plan(session);
  StopRequest stop(session);
  plan.request_with(stop);
  session.world()->barrier().synchronize();  // signals find all ranks prepared
  plan.at("start");
  for (int step = 0; step < plan.steps(); ++step) {
    plan.step(step);
    if (plan.coupled()) session.world()->all_reduce(values.buffer()).synchronize();
    if (stop.after(step)) return save(session, stop, step);
  }
  plan.at("end");
  std::this_thread::sleep_for(milliseconds(200));
  std::printf("rank %d is through\n", session.rank());
  return 0;
}

}  // namespace

int train_until_stopped(Session& session) {
  const int code = train(session);
  if (number_from("JOB_LATE", 0) != 0) std::raise(SIGTERM);
  return code;
}

int time_stop_request(Session& session) {
  constexpr std::int64_t steps = 2'000'000;
  StopRequest stop(session);
  const auto begin = std::chrono::steady_clock::now();
  for (std::int64_t step = 0; step < steps; ++step)
    if (stop.after(step)) return StopRequest::exit_code;
  const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - begin;
  std::printf("a step takes %.1f ns\n", taken.count() / static_cast<double>(steps));
  return 0;
}

}  // namespace lockstep::testing
