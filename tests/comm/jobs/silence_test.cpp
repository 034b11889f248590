// Jobs of which a rank is silent, busy or slow.

#include "comm/jobs/jobs.hpp"

namespace lockstep::testing {
namespace {

TEST(MpiJob, StoppedRankIsLostAndEveryRankSaysWhatItDid) {
  const auto result = mpi_job(3, "stop --device cpu", "LOCKSTEP_HEARTBEAT_TIMEOUT=3");
  expect_quick_failure(result);
  EXPECT_THAT(result.output, AllOf(HasSubstr("[rank 0] error: rank 1 (host "),
                                   HasSubstr("silent for 3 s; its process is stopped"),
                                   HasSubstr("[rank 2] rank 2 of world: in all_reduce #20")));
}

TEST(MpiJob, StoppedRankZeroIsLostToo) {
  const auto result = mpi_job(2, "stop --device cpu", "JOB_CULPRIT=0 LOCKSTEP_HEARTBEAT_TIMEOUT=3");
  expect_quick_failure(result);
  EXPECT_THAT(result.output, AllOf(HasSubstr("[rank 1] error: rank 0 (host "),
                                   HasSubstr("its process is stopped")));
}

TEST(TcpJob, StoppedRankIsLost) {
  const auto result = tcp_job(2, "stop", "LOCKSTEP_HEARTBEAT_TIMEOUT=3", "kill -KILL $!");
  EXPECT_NE(result.exit_code, 0);
  EXPECT_LT(seconds_after_event(result), 10 * timeout_multiplier) << result.output;
  EXPECT_THAT(result.output, HasSubstr("its process is stopped"));
}

TEST(MpiJob, EndlessLoopRunsIntoTheTimeoutAndEveryRankSaysWhatItDid) {
  const auto result = mpi_job(3, "loop --device cpu", "JOB_TIMEOUT=2");
  expect_quick_failure(result);
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("in all_reduce #20"), HasSubstr("timed out after 2000"),
                    HasSubstr("waiting for rank 1"),
                    HasSubstr("[rank 1] rank 1 of world: idle after all_reduce #19"),
                    HasSubstr("[rank 2] rank 2 of world: ")));
}

TEST(MpiJob, SlowRankIsWaitedFor) {
  const auto result = mpi_job(2, "slow --device cpu", "LOCKSTEP_HEARTBEAT_TIMEOUT=2");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(occurrences(result.output, "is through"), 2u) << result.output;
}

TEST(SingleJob, RefusesAHeartbeatTimeoutThatIsNoNumber) {
  const auto result = run_command("LOCKSTEP_HEARTBEAT_TIMEOUT=soon " + program + " sum");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.output, HasSubstr("LOCKSTEP_HEARTBEAT_TIMEOUT must be a number of seconds, "
                                       "got 'soon'"));
}

}  // namespace
}  // namespace lockstep::testing
