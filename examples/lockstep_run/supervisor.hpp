#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep_run/generation.hpp"
#include "lockstep_run/host_pool.hpp"
#include "lockstep_run/restart_policy.hpp"
#include "lockstep_run/step_watch.hpp"

namespace run {

struct SupervisorOptions {
  HostPoolOptions hosts;
  int ranks = 1;                        ///< at most
  int min_hosts = 1;                    ///< with fewer it waits,
  std::chrono::seconds host_wait{600};  ///< for so long
  RestartOptions restarts;
  StepWatchOptions steps;
  std::optional<std::chrono::seconds> grace;  ///< after SIGTERM, SIGUSR1, SIGHUP; none: any time
  bool tag_output = false;                    ///< "[rank 3] " before each line
  std::vector<std::string> pass;              ///< names of variables for ranks on other hosts
  std::vector<std::string> command;
};

/// Starts the ranks of a program, and starts all of them again when one dies. One thread; it takes
/// SIGTERM, SIGUSR1, SIGINT and, unless it is ignored, SIGHUP of the process.
class Supervisor {
 public:
  explicit Supervisor(SupervisorOptions options);
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  /// Runs the program to its end. @return its exit code. @throws Error if hosts cannot be reached.
  int run();

 private:
  using Clock = HostLink::Clock;
  using Deadline = Clock::time_point;

  static constexpr std::chrono::milliseconds longest_turn{500};
  /// Between the kill of ranks and the end of agents that say nothing of theirs.
  static constexpr std::chrono::seconds after_kill{10};

  static Descriptor ending_signals();
  bool gather_hosts();
  bool launch();
  int listen(std::size_t host);
  std::vector<std::string> environment_of_ranks(std::size_t first_host, int port) const;
  void watch();
  void end_ranks_in_time();
  void take_hosts_back();
  void watch_steps();
  std::optional<int> after_generation();
  std::optional<int> after_death(const Death& death);
  int code_of_asked_end();

  void turn(std::chrono::milliseconds limit);
  void try_lost_hosts();
  void take(const Message& message, std::size_t host);
  void compare_with_checkpoints();
  void take_signals();
  void end_by(int signal);
  void write(int stream, std::string_view text);
  bool wait_for_reader();
  void tell_ranks(const Message& message);
  /// One line of its own on standard error.
  template <class... T>
  void say(const T&... parts) {
    write(2, lockstep::detail::concat("lockstep_run: ", parts..., "\n"));
  }
  bool is_ending() const { return ending_signal_ != 0; }
  bool is_out_of_time() const { return limit_ && Clock::now() >= *limit_; }

  SupervisorOptions options_;
  std::string folder_;  // of the ranks
  Descriptor signals_;
  HostPool hosts_;
  RestartPolicy policy_;
  StepWatch step_watch_;
  std::optional<Generation> generation_;
  std::optional<int> port_;             // of rank 0
  std::optional<std::string> refusal_;  // of an agent
  Deadline launched_at_;
  std::optional<Deadline> kill_at_, give_up_at_;
  std::optional<Deadline> limit_;  // of a run that was asked to end
  bool is_dying_ = false, is_making_room_ = false, has_made_steps_ = false;
  int ending_signal_ = 0;
  std::int64_t saved_step_ = -1;  // of former generations, until this one is compared with it
};

}  // namespace run
