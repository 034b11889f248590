#pragma once

#include <string>
#include <vector>

namespace run {

/// What an agent starts as each of its ranks.
struct LaunchPlan {
  std::string folder;                    ///< in which
  std::vector<std::string> command;      ///< program and arguments
  std::vector<std::string> environment;  ///< "NAME=value", beside what the agent has itself

  /// As one text, and back. @throws CorruptData
  std::string to_text() const;
  static LaunchPlan parse(const std::string& text);
};

/// This process' environment with some variables set anew, and without those of launchers further
/// out (mpirun, torchrun, srun), whose ranks these are not.
std::vector<std::string> environment_with(const std::vector<std::string>& variables);

/// Adds what ranks on other hosts get, too: LOCKSTEP_..., OMP_..., and what is asked for, "NAME" as
/// it is here or "NAME=value". What is there stays: a shell takes the last of two.
void pass_variables(std::vector<std::string>& variables, const std::vector<std::string>& asked);

}  // namespace run
