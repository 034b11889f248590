#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace run {

/// Options of a RestartPolicy.
struct RestartOptions {
  int max_restarts = 10;  ///< in all
  /// So often one step, or a start, may die, the last of which ends the run; 0: any.
  int deaths_per_step = 2;
};

/// Whether, and when, a run whose ranks died is started again.
class RestartPolicy {
 public:
  struct Decision {
    std::string refusal;  ///< why it is not started again; empty: it is
    std::chrono::milliseconds delay{0};
  };

  explicit RestartPolicy(RestartOptions options) : options_(options) {}

  /// Takes a death. The first one behind steps that no generation had made before is followed by a
  /// start at once; each further one waits for twice as long as the one before, from 1 s to a
  /// minute.
  /// @param step the last one that the dead rank completed; none if it had told of no step.
  /// @param is_of_the_host a host was lost, whatever the step was.
  Decision after_death(std::optional<std::int64_t> step, bool is_of_the_host = false);
  /// Takes the exit of a program, with a code, soon after a start of a run that has made no step.
  /// It counts as a death without a step; so many with the same code, other ones between or not, as
  /// of one step end the run.
  Decision after_early_exit(int code);
  /// How many restarts it has granted.
  int restarts() const { return restarts_; }

 private:
  RestartOptions options_;
  int restarts_ = 0;
  int deaths_in_a_row_ = 0;               // without new ground between
  std::optional<std::int64_t> furthest_;  // step behind which one died
  int deaths_there_ = 0;
  std::map<int, int> early_exits_;  // by code, without new ground between
};

}  // namespace run
