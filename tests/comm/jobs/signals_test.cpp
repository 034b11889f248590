// Jobs that get signals from outside.

#include <csignal>
#include <utility>

#include "comm/jobs/jobs.hpp"

namespace lockstep::testing {
namespace {

TEST(SingleJob, EndsBySignalsAsAnyProgram) {
  for (const auto& [mode, code] :
       {std::pair{"terminate", 128 + SIGTERM}, {"interrupt", 128 + SIGINT}}) {
    const auto result = run_command(program + " " + mode + " --device cpu; echo code $?");
    EXPECT_THAT(result.output, HasSubstr("code " + std::to_string(code)));
    EXPECT_LT(seconds_after_event(result), 10 * timeout_multiplier) << result.output;
  }
}

TEST(MpiJob, SignalToOneRankEndsAllByItsName) {
  const auto terminated = mpi_job(2, "terminate --device cpu");
  expect_quick_failure(terminated);
  EXPECT_THAT(terminated.output, HasSubstr("[rank 1] error: ended by SIGTERM"));
  EXPECT_THAT(terminated.output, Not(HasSubstr("was lost")));
  const auto interrupted = mpi_job(2, "interrupt --device cpu", "JOB_CULPRIT=0");
  expect_quick_failure(interrupted);
  EXPECT_THAT(interrupted.output, HasSubstr("[rank 0] error: interrupted (SIGINT"));
  EXPECT_THAT(interrupted.output, Not(HasSubstr("was lost")));
}

TEST(TcpJob, InterruptOfAllRanksBlamesNone) {
  const auto result = tcp_job(3, "interrupt-all");
  expect_quick_failure(result);
  EXPECT_EQ(occurrences(result.output, "interrupted (SIGINT, as Ctrl-C sends it)"), 1u)
      << result.output;
  EXPECT_THAT(result.output, Not(HasSubstr("was lost")));
}

}  // namespace
}  // namespace lockstep::testing
