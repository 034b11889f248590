#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep_run/progress_page.hpp"

namespace run {

/// Exit code of a program that has stopped, saved, and wants to be started again.
inline constexpr int stopped_code = 75;

/// "SIGTERM"
std::string name_of_signal(int number);

/// Why a generation ends before its time.
struct Death {
  std::string what;             ///< "rank 1 on a was killed by SIGKILL behind step 34"
  int exit_code = 1;            ///< of the run, if it is not started again
  bool is_exit = false;         ///< the program ended by itself
  bool is_refusal = false;      ///< the program refuses its command line
  bool is_of_the_host = false;  ///< and says nothing of the step
  std::optional<std::int64_t> step = std::nullopt;  ///< the last that the dead rank completed
};

/// The ranks between one start and the next: where they are, how far, and how they ended.
class Generation {
 public:
  /// @param names, ranks of each host.
  Generation(int number, std::vector<std::string> names, std::vector<int> ranks);

  int number() const { return number_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  int ranks_of(std::size_t host) const { return counts_[host]; }
  int first_rank_of(std::size_t host) const;

  void note_progress(int rank, const Progress& progress);
  /// @param status as of waitpid.
  void note_end(int rank, int status, const Progress& progress);
  /// A host that can no longer be reached, for that reason: what runs there is lost.
  void note_lost_host(std::size_t host, const std::string& reason);

  /// The ranks make no step any more.
  /// @param what "no rank has completed a step for 60 s"
  void note_stall(const std::string& what);

  /// Whether a rank of a host still runs, for all that is known.
  bool is_running_on(std::size_t host) const;
  /// Whether no rank runs.
  bool is_over() const;
  /// The first rank that died; none if all that ended did so in good order.
  const std::optional<Death>& death() const { return death_; }
  /// Of a generation that is over, without a death: 0, or 75 if its ranks stopped.
  int exit_code() const { return exit_code_; }
  /// Whether a rank has told of a step.
  bool has_made_steps() const;
  /// Behind which step it began, and that of the newest checkpoint that it has saved; -1: none
  /// told.
  std::int64_t first_step() const;
  std::int64_t saved_step() const;
  /// The last step that any rank has completed; -1: none told.
  std::int64_t furthest_step() const;
  /// Whether a rank is in what takes longer than a step.
  bool is_in_long_work() const;

 private:
  struct Rank {
    std::size_t host = 0;
    bool is_running = true;
    Progress progress = {};
  };
  std::string place_of(int rank) const;

  int number_;
  std::vector<std::string> names_;
  std::vector<int> counts_;
  std::vector<Rank> ranks_;
  std::optional<Death> death_;
  int exit_code_ = 0;
};

}  // namespace run
