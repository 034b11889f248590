#include "lockstep_run/supervisor.hpp"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "lockstep_run/launch_plan.hpp"
#include "lockstep_run/listener.hpp"

namespace run {

using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

// Between the first death and the end of the others, which say what they were at. One that exits
// has had the time to hear of it from the others, or to tell them.
constexpr milliseconds last_words(100);
// What ranks have to say what they are at, whose threads look twice a second.
constexpr milliseconds time_to_report(2000);
// How long a host that is being reached is waited for where others would do.
constexpr seconds first_timeout(30), later_timeout(2);
// At first all are waited for a moment, so that those named first are used.
constexpr seconds in_order_timeout(1);
// What ends later without a step has made some that it does not tell of, or waited for other hosts.
constexpr seconds start_time(30);
constexpr int cannot_run_code = 127;
// All ranks start at the same time: one that is not there so soon is stopped, or cannot be reached.
constexpr const char* join_timeout = "LOCKSTEP_JOIN_TIMEOUT";
constexpr int default_join_seconds = 60;

/// How many seconds a rank may be stopped: longer than the other ranks need to find it, and to say
/// what they were at; 0: for any time.
int longest_stop() {
  const char* text = std::getenv("LOCKSTEP_HEARTBEAT_TIMEOUT");
  const int heartbeat_timeout = text ? std::atoi(text) : 30;
  return heartbeat_timeout + heartbeat_timeout / 2;
}

}  // namespace

Supervisor::Supervisor(SupervisorOptions options)
    : options_(std::move(options)),
      folder_(std::filesystem::current_path().string()),
      signals_(ending_signals()),
      hosts_(options_.hosts),
      policy_(options_.restarts),
      step_watch_(options_.steps) {}

int Supervisor::run() {
  while (gather_hosts() && launch()) {
    watch();
    if (const auto code = after_generation()) return *code;
  }
  return code_of_asked_end();
}

/// @return false if the run is to end.
bool Supervisor::gather_hosts() {
  const Deadline begin = Clock::now(), limit = begin + options_.host_wait;
  const Deadline first_try = begin + (generation_ ? later_timeout : first_timeout);
  const auto are_enough = [&] {
    const bool is_in_order = generation_ || Clock::now() > begin + in_order_timeout;
    if (hosts_.slots_up() >= options_.ranks && (is_in_order || !hosts_.is_one_coming()))
      return true;
    const bool is_worth_waiting = hosts_.is_one_coming() && Clock::now() < first_try;
    return hosts_.hosts_up() >= options_.min_hosts && !is_worth_waiting;
  };
  for (try_lost_hosts(); !is_ending() && !are_enough(); turn(milliseconds(50)))
    LOCKSTEP_CHECK(Clock::now() < limit, lockstep::Error, hosts_.hosts_up(),
                   " host(s) can be reached, fewer than ", options_.min_hosts, ", for ",
                   options_.host_wait.count(), " s", hosts_.failures());
  return !is_ending();
}

// --- a generation

/// @return false if the run is to end.
bool Supervisor::launch() {
  std::vector<std::string> names;
  for (const Host& host : hosts_.reachable()) names.push_back(host.name);
  const std::vector<int> ranks = deal_ranks(hosts_.reachable(), options_.ranks);
  generation_.emplace(generation_ ? generation_->number() + 1 : 1, names, ranks);
  kill_at_.reset();
  give_up_at_.reset();
  refusal_.reset();
  is_dying_ = is_making_room_ = false;
  if (generation_->size() < options_.ranks)
    say("starts ", generation_->size(), " of ", options_.ranks, " ranks: not all hosts are there");
  const auto first = static_cast<std::size_t>(
      std::ranges::find_if(ranks, [](int count) { return count > 0; }) - ranks.begin());
  const int port = listen(first);
  if (is_ending()) return false;  // the ranks would not hear of it
  if (port == 0)
    for (std::size_t host = 0; host < hosts_.size(); ++host)
      generation_->note_lost_host(host, "no rank was started");
  const LaunchPlan plan{folder_, options_.command, environment_of_ranks(first, port)};
  for (std::size_t host = 0; host < ranks.size(); ++host)
    if (generation_->is_running_on(host))
      hosts_.link(host).send({MessageType::start,
                              {generation_->first_rank_of(host), ranks[host], longest_stop()},
                              plan.to_text()});
  launched_at_ = Clock::now();
  step_watch_.begin();
  return true;
}

/// Has the agent of rank 0 listen where the ranks will meet. @return the port; 0 if it is lost.
int Supervisor::listen(std::size_t host) {
  port_.reset();
  hosts_.link(host).send({MessageType::listen, {}, hosts_.link(host).host().address});
  while (!port_ && !refusal_ && !is_ending() && generation_->is_running_on(host))
    turn(longest_turn);
  return port_.value_or(0);
}

std::vector<std::string> Supervisor::environment_of_ranks(std::size_t first_host, int port) const {
  using lockstep::detail::concat;
  std::vector<std::string> variables{concat("WORLD_SIZE=", generation_->size()),
                                     "MASTER_ADDR=" + hosts_.link(first_host).host().address,
                                     concat("MASTER_PORT=", port),
                                     // Ranks that are left of a former generation have another one.
                                     "LOCKSTEP_JOB_TOKEN=" + make_token(),
                                     concat("LOCKSTEP_RUN_GENERATION=", generation_->number())};
  if (!std::getenv(join_timeout))
    variables.push_back(concat(join_timeout, "=", default_join_seconds));
  if (options_.grace) variables.push_back(concat("LOCKSTEP_GRACE_TIME=", options_.grace->count()));
  pass_variables(variables, options_.pass);
  return variables;
}

void Supervisor::watch() {
  while (!generation_->is_over()) {
    turn(longest_turn);
    end_ranks_in_time();
    take_hosts_back();
    watch_steps();
  }
}

void Supervisor::end_ranks_in_time() {
  const auto now = Clock::now();
  if ((generation_->death() || refusal_) && !is_dying_) {
    is_dying_ = true;
    kill_at_ = now + (refusal_ ? milliseconds(0) : last_words);
  }
  if (kill_at_ && now >= *kill_at_) {
    tell_ranks({MessageType::kill});
    kill_at_.reset();
    give_up_at_ = now + after_kill;
  }
  if (!give_up_at_ || now < *give_up_at_) return;
  for (std::size_t host = 0; host < hosts_.size(); ++host)
    if (generation_->is_running_on(host)) hosts_.link(host).drop("its ranks do not end");
}

/// Has the ranks stop behind a step when there are hosts for more of them.
void Supervisor::take_hosts_back() {
  const bool is_in_order = !is_dying_ && !is_ending() && !is_making_room_ && !refusal_;
  if (!is_in_order || generation_->size() >= options_.ranks || !generation_->has_made_steps() ||
      hosts_.slots_up() <= generation_->size())
    return;
  say("hosts have returned: the ranks stop, and more of them go on");
  is_making_room_ = true;
  tell_ranks({MessageType::signal, {SIGUSR1}});
}

/// Says that the ranks make no step any more, with what each is at, and ends them if that is asked
/// for.
void Supervisor::watch_steps() {
  const std::int64_t step = generation_->furthest_step();
  const StepWatch::Finding finding =
      step_watch_.look(step, generation_->is_in_long_work(), Clock::now());
  if (finding == StepWatch::Finding::none || is_dying_ || is_ending() || is_making_room_ ||
      refusal_ || generation_->is_over())
    return;
  const std::string what =
      lockstep::detail::concat("no rank has completed a step for ", step_watch_.standing().count(),
                               " s, behind step ", step);
  tell_ranks({MessageType::report});
  if (finding == StepWatch::Finding::report) return say(what, ":");
  generation_->note_stall(what);  // which is said behind its ranks' reports
  is_dying_ = true;
  kill_at_ = Clock::now() + time_to_report;
}

/// @return the run's exit code; none if it goes on.
std::optional<int> Supervisor::after_generation() {
  has_made_steps_ |= generation_->has_made_steps();
  if (generation_->saved_step() >= 0) saved_step_ = generation_->saved_step();
  if (refusal_) {
    say(*refusal_);
    if (!has_made_steps_) return cannot_run_code;  // else it is one host's, and may pass
  }
  if (is_ending()) return code_of_asked_end();
  const std::optional<Death>& death = generation_->death();
  const int code = death ? death->exit_code : generation_->exit_code();
  const bool has_made_room = code == stopped_code || code == 128 + SIGUSR1;
  if (is_making_room_ && has_made_room) return std::nullopt;
  return death ? after_death(*death) : code;
}

/// The exit code of a run that was asked to end: that of its ranks only if they all left in good
/// order, for then they have saved what they had.
int Supervisor::code_of_asked_end() {
  if (ending_signal_ == SIGINT) return 128 + SIGINT;
  const std::optional<Death> death = generation_ ? generation_->death() : std::nullopt;
  if (generation_ && generation_->is_over() && !death) return generation_->exit_code();
  if (death)
    say("asked to stop by ", name_of_signal(ending_signal_),
        ", but not all ranks did so in good order: ", death->what);
  return 128 + ending_signal_;
}

std::optional<int> Supervisor::after_death(const Death& death) {
  say(death.what);
  // Where steps were made, the command line was one that made sense.
  if (death.is_refusal && !has_made_steps_) return death.exit_code;
  const bool is_early =
      death.is_exit && !has_made_steps_ && Clock::now() < launched_at_ + start_time;
  const RestartPolicy::Decision decision =
      is_early ? policy_.after_early_exit(death.exit_code)
               : policy_.after_death(death.step, death.is_of_the_host);
  if (!decision.refusal.empty()) {
    say("ends: ", decision.refusal);
    return death.exit_code;
  }
  const auto delay = decision.delay.count();
  say("restart ", policy_.restarts(), " of ", options_.restarts.max_restarts,
      delay > 0 ? lockstep::detail::concat(" in ", delay / 1000, " s") : "");
  const Deadline end = Clock::now() + decision.delay;
  while (Clock::now() < end && !is_ending()) turn(milliseconds(50));
  return std::nullopt;
}

}  // namespace run
