#pragma once

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/tcp/socket.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/runtime/info.hpp"
#include "support/machine_load.hpp"
#include "support/mpi_environment.hpp"
#include "support/process.hpp"
#include "support/timeout_multiplier.hpp"

/// @file
/// Whole jobs: how tests start real processes, and what they expect of those that fail.

namespace lockstep::testing {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

inline const std::string program = LOCKSTEP_JOB_PROGRAM;

// @param environment variables of all ranks: "NAME=value ..."
inline CommandResult mpi_job(int ranks, const std::string& arguments,
                             const std::string& environment = "") {
  return run_command(environment + " " LOCKSTEP_MPIEXEC " --bind-to none -np " +
                     std::to_string(ranks) + " " + program + " " + arguments);
}

// A port that nobody listens on, also where other copies of this test run.
inline int free_port() {
  return comm::tcp::local_endpoint(comm::tcp::listen_on({"127.0.0.1", 0})).port;
}

inline std::string tcp_rank(int rank, int size, int port, const std::string& arguments,
                            const std::string& token = "secret") {
  return "RANK=" + std::to_string(rank) + " WORLD_SIZE=" + std::to_string(size) +
         " MASTER_ADDR=127.0.0.1 MASTER_PORT=" + std::to_string(port) +
         " LOCKSTEP_JOB_TOKEN=" + token + " " + program + " " + arguments + " --device cpu";
}

// Starts all ranks of a job that meets and exchanges data over TCP; the result is that of rank 0.
// @param environment a variable of all ranks
// @param at_end a command for when rank 0 has ended, before the others are waited for
inline CommandResult tcp_job(int size, const std::string& arguments,
                             const std::string& environment = "",
                             const std::string& at_end = "true") {
  const int port = free_port();
  std::string command = "export JOB_COMM=tcp; ";
  if (!environment.empty()) command += "export " + environment + "; ";
  for (int rank = 1; rank < size; ++rank) command += tcp_rank(rank, size, port, arguments) + " & ";
  return run_command(command + tcp_rank(0, size, port, arguments) + "; code=$?; " + at_end +
                     "; wait; exit $code");
}

// Why ranks cannot have a GPU each; empty if they can, or need none.
inline std::string missing(const std::string& device, int ranks) {
  const int gpus = device == "cuda" ? cuda_device_count() : ranks;
  return gpus >= ranks ? ""
                       : std::to_string(ranks) + " ranks but " + std::to_string(gpus) + " GPUs";
}

// Seconds from the event that the job itself noted down to its end; all of them if it noted none.
// The start of the ranks is not what is measured.
inline double seconds_after_event(const CommandResult& result) {
  const std::string words = "event at ";
  const std::size_t at = result.output.find(words);
  if (at == std::string::npos) return result.seconds;
  const std::chrono::duration<double> end = result.end.time_since_epoch();
  return end.count() - std::stod(result.output.substr(at + words.size())) / 1000;
}

/// It ends no later than so many seconds after its event; on a machine that has more to do than it
/// has cores, by as much later.
inline void expect_failure_within(double seconds, const CommandResult& result) {
  EXPECT_NE(result.exit_code, 0) << result.output;
  EXPECT_LT(seconds_after_event(result), seconds * timeout_multiplier * machine_load())
      << result.output;
}

inline void expect_quick_failure(const CommandResult& result) {
  EXPECT_NE(result.exit_code, 0) << result.output;
  EXPECT_LT(seconds_after_event(result), 10 * timeout_multiplier) << result.output;
}

/// What a rank takes of a core, by its own word. @param state "takes" where it has nothing to do,
/// "takes waiting" for another
inline double core_share(const CommandResult& result, const std::string& backend, int rank,
                         const std::string& state) {
  const std::string words = "over " + backend + " rank " + std::to_string(rank) + ' ' + state + ' ';
  const std::size_t at = result.output.find(words);
  EXPECT_NE(at, std::string::npos) << words << result.output;
  return at == std::string::npos ? 1 : std::stod(result.output.substr(at + words.size()));
}

/// A job of which a rank fails, on the device that is the parameter.
class MpiFaults : public ::testing::TestWithParam<const char*> {
 protected:
  static constexpr int most_ranks = 4;

  void SetUp() override {
    const std::string reason = missing(GetParam(), most_ranks);
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
  static CommandResult job(int ranks, const std::string& mode) {
    return mpi_job(ranks, mode + " --device " + GetParam());
  }
};

}  // namespace lockstep::testing
