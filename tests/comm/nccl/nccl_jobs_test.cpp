// Jobs over an NCCL that waits where the real one may.

#include <chrono>

#include "comm/jobs/jobs.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::testing {
namespace {

class NcclJob : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string reason = missing("cuda", 2);
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
  static CommandResult job(const std::string& mode, const std::string& environment = "",
                           int ranks = 2) {
    return mpi_job(ranks, mode + " --device cuda", environment + " timeout 100");
  }
  static CommandResult silent_job(const std::string& mode) {
    return job(mode, "LOCKSTEP_HEARTBEAT_TIMEOUT=3");
  }
  static void expect_success(const CommandResult& result) {
    EXPECT_EQ(result.exit_code, 0) << result.output;
  }
};

TEST_F(NcclJob, EndsInTimeWhileASubmitWaitsForTheDevicesQueue) {
  const auto result = silent_job("fill-queue");
  expect_quick_failure(result);
  EXPECT_THAT(result.output, HasSubstr("was lost: silent for"));
}

// Its control channel's thread hears news while the monitor waits for the driver.
TEST_F(NcclJob, RankWhoseDriverWaitsIsNotTakenForSilentWhenAnotherLeaves) {
  const auto result = job("leave-while-the-driver-waits", "LOCKSTEP_HEARTBEAT_TIMEOUT=4");
  EXPECT_THAT(result.output, AllOf(HasSubstr("rank 0 hears of rank 1"), Not(HasSubstr("silent"))));
}

TEST_F(NcclJob, EndsInTimeWhileTheDriverAnswersNobody) {
  const auto result = job("time-out-while-the-driver-waits", "LOCKSTEP_TIMEOUT=2");
  expect_quick_failure(result);
  EXPECT_THAT(result.output, HasSubstr("the driver of its device has not answered for"));
}

TEST_F(NcclJob, EndsInTimeThoughAbortsDoNotComeBack) {
  const auto result = silent_job("abort-that-waits");
  expect_quick_failure(result);
  EXPECT_THAT(result.output, HasSubstr("was lost: silent for"));
}

TEST_F(NcclJob, AbortOnOneRankReachesTheOthers) {
  for (const std::string mode : {"abort-world", "abort-part"}) {
    const auto result = job(mode);
    expect_quick_failure(result);
    EXPECT_THAT(result.output, HasSubstr("[rank 1] error: the user gave up")) << mode;
  }
}

TEST_F(NcclJob, BackwardThatFailsOnOneRankReachesTheOthers) {
  for (const std::string mode : {"fail-in-backward", "fail-before-gradients"}) {
    const auto result = job(mode);
    expect_quick_failure(result);
    EXPECT_THAT(result.output, HasSubstr("bad batch")) << mode;
  }
}

// Before two ranks' first message NCCL connects them, on the host.

TEST_F(NcclJob, FailureIsHeardBeforeTheFirstMessage) {
  const auto result = job("fail-before-first-message");
  expect_quick_failure(result);
  EXPECT_THAT(result.output, HasSubstr("bad batch"));
}

TEST_F(NcclJob, FirstBatchFailsWithoutTheOneOfItsRanksThatHasLeft) {
  if (const std::string reason = missing("cuda", 3); !reason.empty()) GTEST_SKIP() << reason;
  const auto result = job("leave-before-first-batch", "", 3);
  expect_quick_failure(result);
  EXPECT_THAT(result.output, AllOf(HasSubstr("[rank 0] error: "),
                                   HasSubstr("rank 1 left world after 1 collectives")));
}

TEST_F(NcclJob, MessageBehindTheFirstFailsWithoutItsRank) {
  const auto result = job("leave-after-first-message");
  expect_quick_failure(result);
  EXPECT_THAT(result.output, HasSubstr("rank 1 left world after 0 collectives"));
}

TEST_F(NcclJob, FirstMessageThatNobodyReceivesTimesOut) {
  const auto result = job("ignore-first-message", "LOCKSTEP_TIMEOUT=2");
  EXPECT_NE(result.exit_code, 0) << result.output;
  EXPECT_LT(result.seconds, 40 * timeout_multiplier) << result.output;
  EXPECT_THAT(result.output, HasSubstr("timed out after 2000 ms, waiting for rank 1 ("));
}

TEST_F(NcclJob, FirstMessagesOfSeveralGroupsGoOnSideBySide) {
  const auto result = job("begin-on-threads");
  expect_success(result);
  EXPECT_EQ(occurrences(result.output, "exchanged 0 in"), 2u) << result.output;
  EXPECT_EQ(occurrences(result.output, "exchanged 1 in"), 2u) << result.output;
}

TEST_F(NcclJob, FirstMessageIsNoPartOfAGraph) {
  const auto result = job("begin-in-captured-step");
  expect_success(result);
  EXPECT_EQ(occurrences(result.output, "got 4, replayed"), 2u) << result.output;
}

TEST_F(NcclJob, WhoseFailureAllRanksCaughtIsNotSaidToDisagree) {
  const auto result = job("go-on-after-failure");
  EXPECT_EQ(occurrences(result.output, ": failed, was refused"), 2u) << result.output;
  EXPECT_EQ(occurrences(result.output, "disagree"), 0u) << result.output;
  expect_success(result);
}

TEST_F(NcclJob, GoesOnWhileAPartOfItIsDroppedOnOneRank) {
  const TemporaryFolder folder;
  const auto result = job("drop-early", "JOB_FOLDER=" + folder.path().string());
  expect_success(result);
  EXPECT_THAT(result.output, AllOf(HasSubstr("rank 0 went on"), HasSubstr("rank 1 went on")));
}

TEST_F(NcclJob, SplitThatFailsLeavesNoPointerToTheStackAndNoPartBehind) {
  const auto result = job("fail-in-split");
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("NCCL writes elsewhere"), HasSubstr("rank 0 ended the part"),
                    HasSubstr("rank 1 ended the part")));
}

TEST_F(NcclJob, AsksNcclToBeginCollectivesOfSeveralGroupsInTheOrderOfTheCalls) {
  const auto result = job("two-groups");
  expect_success(result);
  EXPECT_EQ(occurrences(result.output, "with NCCL_LAUNCH_ORDER_IMPLICIT=1"), 2u) << result.output;
  EXPECT_EQ(occurrences(result.output, "and NCCL_GRAPH_REGISTER=0"), 2u) << result.output;
}

TEST_F(NcclJob, CollectivesOfSeveralGroupsRunInTurnsWhereNcclKeepsNoOrder) {
  const auto result = job("two-groups", "NCCL_LAUNCH_ORDER_IMPLICIT=0");
  expect_success(result);
  EXPECT_EQ(occurrences(result.output, "began the one called first first"), 2u) << result.output;
}

TEST_F(NcclJob, RankUsesNoOtherDeviceThanItsOwn) {
  const TemporaryFolder folder;
  const auto result = job("own-device", "JOB_FOLDER=" + (folder / "run").string());
  expect_success(result);
  EXPECT_EQ(occurrences(result.output, "pinned 0 ranges"), 0u) << result.output;
  EXPECT_EQ(occurrences(result.output, "used other devices 0 times"), 2u) << result.output;
}

TEST_F(NcclJob, MessageOfARankThatHasLeftIsReceivedBehindLongWork) {
  const auto result = job("send-and-leave", "LOCKSTEP_SIM_WATCH=0");
  expect_success(result);
  EXPECT_THAT(result.output, HasSubstr("received behind long work"));
}

TEST_F(NcclJob, EndsWellThoughItsGpusComeToTheLastCollectiveLate) {
  const auto result = job("end-behind-long-work", "JOB_LEAVE_TIMEOUT=2");
  expect_success(result);
}

TEST_F(NcclJob, GoesOnThoughAPartIsDroppedWhileItsGpusAreBehind) {
  const auto result = job("drop-behind-long-work", "JOB_LEAVE_TIMEOUT=2");
  expect_success(result);
  EXPECT_EQ(occurrences(result.output, "went on to 2"), 2u) << result.output;
}

TEST_F(NcclJob, LastCollectiveThatNeverEndsIsAFailureOnceItsGpuHasComeToIt) {
  const auto result =
      job("end-behind-long-work",
          "JOB_LEAVE_TIMEOUT=4 LOCKSTEP_SIM_FAULT=hang-collective:2 LOCKSTEP_STALL_REPORT=1");
  EXPECT_NE(result.exit_code, 0) << result.output;
  EXPECT_GT(result.seconds, 6) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr("all_reduce"), HasSubstr("did not end within 4000 ms"),
                                   HasSubstr("ranks have been in one operation for 1 s")));
}

TEST_F(NcclJob, RankThatAloneGetsNoCommunicatorEndsAll) {
  const std::string rank = program + " drop-behind-long-work --device cuda";
  const auto result =
      run_command("timeout 100 " LOCKSTEP_MPIEXEC " --bind-to none -np 1 " + rank +
                  " : -np 1 env LOCKSTEP_SIM_FAULT=ncclCommInitRankConfig:1:2 " + rank);
  EXPECT_NE(result.exit_code, 0) << result.output;
  EXPECT_LT(result.seconds, 30 * timeout_multiplier) << result.output;
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("[rank 1] error: NCCL: ncclCommInitRankConfig failed with status 2"),
                    Not(HasSubstr("went on"))));
}

TEST_F(NcclJob, RegistrationThatEndsWithAFailedGroupWaitsForTheAbortOnce) {
  const auto result = job("end-registration-of-a-failed-group");
  // Each rank says so and ends the job: whichever comes first may end the other before it does.
  EXPECT_GE(occurrences(result.output, "waited once"), 1u) << result.output;
  EXPECT_THAT(result.output, Not(HasSubstr("waited for each")));
}

TEST_F(NcclJob, MemoryOfTheGrowablePoolIsNotRegistered) {
  const auto result = job("end-registration-of-a-failed-group", "LOCKSTEP_POOL=growable");
  expect_success(result);
  EXPECT_EQ(occurrences(result.output, "went on without\n"), 2u) << result.output;
  EXPECT_EQ(occurrences(result.output, "the pages of the pool \"growable\""), 1u) << result.output;
}

TEST_F(NcclJob, RegistrationEndsOnceTheCapturedStepHasThatRuns) {
  const auto result = job("end-registration-in-a-launch", "LOCKSTEP_SIM_WATCH=0");
  expect_success(result);
  EXPECT_EQ(occurrences(result.output, "the step was replayed, waited for"), 2u) << result.output;
}

// What follows the simulated GPU reports as races.

TEST_F(NcclJob, WorkDroppedAfterItsGroupFailedKeepsItsMemoryUntilTheKernelHasEnded) {
  const auto result = job("drop-failed-work");
  EXPECT_THAT(result.output, HasSubstr("went on"));
  EXPECT_THAT(result.output, Not(HasSubstr("simulated GPU: race")));
}

TEST_F(NcclJob, BatchBeginsAfterTheStreamsOfItsCalls) {
  const auto result = job("batch-on-a-stream");
  expect_success(result);
  EXPECT_EQ(occurrences(result.output, "sum 131072"), 2u) << result.output;
}

TEST_F(NcclJob, ModelMayBeWrappedWithGradientsOfAnotherStream) {
  const auto result = job("wrap-after-backward");
  expect_success(result);
  EXPECT_EQ(occurrences(result.output, "gradient 4"), 2u) << result.output;
}

}  // namespace
}  // namespace lockstep::testing
