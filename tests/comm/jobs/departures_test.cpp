// Jobs of which a rank leaves in good order while others need it.

#include "comm/jobs/jobs.hpp"

namespace lockstep::testing {
namespace {

TEST_P(MpiFaults, RankThatLeavesEarlyFailsTheOthersCollectives) {
  const auto result = job(3, "leave");
  expect_quick_failure(result);
  EXPECT_THAT(result.output, HasSubstr("rank 1 left world after 20 collectives"));
  EXPECT_EQ(occurrences(result.output, "error: "), 1u) << result.output;
}

TEST(MpiJob, RankZeroMayBeTheOneThatLeavesEarly) {
  const auto result = mpi_job(3, "leave --device cpu", "JOB_CULPRIT=0");
  expect_quick_failure(result);
  EXPECT_THAT(result.output, HasSubstr("rank 0 left world after 20 collectives"));
}

TEST(MpiJob, RankThatLeavesAPartEarlyFailsItsCollectives) {
  const auto result = mpi_job(3, "leave-part --device cpu");
  expect_quick_failure(result);
  EXPECT_THAT(result.output, HasSubstr("rank 1 left world/0.0 after 20 collectives"));
}

TEST_P(MpiFaults, RankWhoseSessionEndsLeavesGroupsThatAreStillOwned) {
  for (const std::string mode : {"leave-kept-world", "leave-kept-part"}) {
    const auto result = job(3, mode);
    expect_quick_failure(result);
    EXPECT_THAT(result.output, HasSubstr("rank 1 left world")) << mode;
  }
}

TEST_P(MpiFaults, GroupThatOutlivesTheSessionEndsWhatIsUnderWayAndRefusesMore) {
  const auto result = job(2, "keep-pending");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(occurrences(result.output, "afterwards: rank "), 2u) << result.output;
  EXPECT_THAT(result.output, HasSubstr("the Session has ended"));
}

TEST_P(MpiFaults, FailureOfAPartEndsNobodyWhoHasNothingUnderWayInIt) {
  for (const std::string mode : {"abort-idle-part", "unwind-idle-part", "time-out-in-part"}) {
    const auto result = job(2, mode);
    EXPECT_EQ(result.exit_code, 0) << mode << ": " << result.output;
    EXPECT_EQ(occurrences(result.output, "went on to 4"), 2u) << mode << ": " << result.output;
  }
}

TEST_P(MpiFaults, FailureOfAPartDoesNotReachRanksThatHaveLeftIt) {
  const auto result = job(2, "give-up-left-part");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("afterwards: rank 0 has left world/0.0"));
}

TEST(TcpJob, RankThatLeavesEarlyFailsTheOthersCollectives) {
  const auto result = tcp_job(3, "leave");
  expect_quick_failure(result);
  EXPECT_THAT(result.output, HasSubstr("rank 1 left world after 20 collectives"));
}

TEST_P(MpiFaults, RankThatLeavesEarlyFailsMessagesToAndFromIt) {
  for (const std::string mode : {"leave-receiver", "leave-sender"}) {
    const auto result = job(2, mode);
    expect_quick_failure(result);
    EXPECT_THAT(result.output, HasSubstr("rank 1 left world after 20 collectives")) << mode;
  }
}

TEST(TcpJob, RankThatLeavesEarlyFailsMessagesFromIt) {
  const auto result = tcp_job(2, "leave-receiver");
  expect_quick_failure(result);
  EXPECT_THAT(result.output, HasSubstr("rank 1 left world after 20 collectives"));
}

// It is not in MPI_Finalize meanwhile, where nothing could tell it that the job has failed.
TEST(TcpJob, RankThatLeftInGoodOrderEndsWithTheJob) {
  const int port = free_port();
  const auto result =
      run_command(tcp_rank(0, 2, port, "leave-receiver") + " & " +
                  tcp_rank(1, 2, port, "leave-receiver") + "; code=$?; wait; exit $code");
  expect_quick_failure(result);
  EXPECT_EQ(result.exit_code, 1);
}

// Its rank leaves as if all were well.
TEST(MpiJob, CollectiveThatFailsUnwaitedEndsTheJob) {
  for (const std::string mode : {"alone", "alone-in-part"}) {
    const auto result = mpi_job(3, mode + " --device cpu");
    expect_quick_failure(result);
    EXPECT_THAT(result.output, HasSubstr("left world")) << mode;
  }
}

TEST(TcpJob, CollectiveThatFailsUnwaitedEndsTheJob) {
  for (const std::string mode : {"alone", "alone-in-part"}) {
    const auto result = tcp_job(3, mode);
    expect_quick_failure(result);
    EXPECT_THAT(result.output, HasSubstr("left world")) << mode;
  }
}

}  // namespace
}  // namespace lockstep::testing
