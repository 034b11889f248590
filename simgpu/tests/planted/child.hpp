#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planted/fault.hpp"

/// @file
/// Runs of programs in processes of their own, as a user would see them.

namespace planted {

/// How a program is run.
struct RunOptions {
  bool with_fault = false;
  std::uint64_t seed = 0;
  std::string order = "random";  ///< LOCKSTEP_SIM_ORDER
};

/// A report, as it was printed.
struct PrintedReport {
  std::string kind;
  std::string text;
};

/// What came of a run.
struct RunResult {
  std::vector<PrintedReport> reports;
  std::string output;  ///< all that was printed to stderr
  int exit_code = 0;   ///< 128 + signal for a process that a signal ended
};

/// Forks a process that runs the fault's program, and waits for it. The calling process must not
/// have used the simulated GPU, nor have other threads.
RunResult run_in_child(const Fault& fault, const RunOptions& options);

/// Asks a question in a forked process, so that this one has not used the simulated GPU after it.
bool holds_in_child(bool (*question)());

/// Runs the program in this process. @return the exit code but for what reports make of it.
int run_here(const Fault& fault, bool with_fault);

}  // namespace planted
