// Jobs of which a rank throws or dies.

#include <map>
#include <tuple>

#include "comm/jobs/jobs.hpp"

namespace lockstep::testing {
namespace {

INSTANTIATE_TEST_SUITE_P(OnProcessors, MpiFaults, ::testing::Values("cpu"));
INSTANTIATE_TEST_SUITE_P(OnGpus, MpiFaults, ::testing::Values("cuda"));

TEST_P(MpiFaults, ExceptionOfOneRankEndsAllWithItsMessageOnce) {
  const auto result = job(3, "throw");
  expect_quick_failure(result);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(occurrences(result.output, "[rank 1] error: no memory for 7 bytes"), 1u)
      << result.output;
  EXPECT_EQ(occurrences(result.output, "error: "), 1u) << result.output;
}

TEST_P(MpiFaults, ExceptionOfADataSetIsToldWithItsSamplesAndTheStep) {
  const auto result = job(2, "bad-sample");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.output,
              HasSubstr("[rank 1] error: record 7 is cut short (samples 14, 15 of epoch 0; "
                        "after 3 steps)"));
}

TEST_P(MpiFaults, ExceptionReachesRanksOutsideCollectives) {
  const auto result = job(2, "throw-alone");
  expect_quick_failure(result);
  EXPECT_THAT(result.output, HasSubstr("[rank 1] error: lonely"));
}

TEST_P(MpiFaults, InvalidArgumentEndsWithCodeTwo) {
  const auto result = job(2, "refuse");
  expect_quick_failure(result);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.output, HasSubstr("[rank 1] error: lr must be positive"));
}

TEST_P(MpiFaults, ErrorBehindAnAbortIsSaidInItsStead) {
  const auto result = job(3, "abort");
  expect_quick_failure(result);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.output, HasSubstr("[rank 1] error: lr must be positive"));
  EXPECT_EQ(occurrences(result.output, "error: "), 1u) << result.output;
}

TEST_P(MpiFaults, ErrorOfAllRanksIsSaidOnce) {
  const auto result = job(4, "refuse-all");
  expect_quick_failure(result);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(occurrences(result.output, "steps must be positive"), 1u) << result.output;
}

TEST_P(MpiFaults, UncaughtExceptionEndsAll) {
  const auto result = job(2, "uncaught");
  expect_quick_failure(result);
  EXPECT_THAT(result.output, HasSubstr("nobody catches this"));
}

TEST_P(MpiFaults, ExceptionInAThreadEndsAll) {
  const auto result = job(2, "thread");
  expect_quick_failure(result);
  EXPECT_THAT(result.output, HasSubstr("in a thread"));
}

TEST_P(MpiFaults, RanksThatCallAnotherCollectiveAreNamedWithIt) {
  const std::map<std::string, std::string> called_by_mode{
      {"other-count", "rank 1 called all_reduce #0 of 1001 f32 (sum)"},
      {"other-dtype", "rank 1 called all_reduce #0 of 1000 i32 (sum)"},
      {"other-collective", "rank 1 called barrier #0"},
      {"other-label", "rank 1 called all_reduce #0 of 1000 f32 (sum) 'bucket 4'"}};
  for (const auto& [mode, called] : called_by_mode) {
    const auto result = job(3, mode);
    expect_quick_failure(result);
    EXPECT_THAT(result.output,
                AllOf(HasSubstr("the ranks of world disagree"), HasSubstr(called),
                      HasSubstr("called all_reduce #0 of 1000 f32 (sum) 'bucket 3'")));
  }
}

// Where the calls are compared beside the collectives, the others have left by then.
TEST_P(MpiFaults, RankThatDisagreesAboutTheLastCollectiveOfAllIsNamed) {
  const auto result = job(2, "other-label-at-the-end");
  expect_quick_failure(result);
  EXPECT_THAT(result.output, AllOf(HasSubstr("the ranks of world disagree"),
                                   HasSubstr("of 1000 f32 (sum) 'bucket 3'"),
                                   HasSubstr("of 1000 f32 (sum) 'bucket 4'")));
}

TEST_P(MpiFaults, RanksThatMeanDifferentMessagesAreNamed) {
  const auto result = job(2, "other-message");
  expect_quick_failure(result);
  EXPECT_THAT(result.output, AllOf(HasSubstr("called send to rank 1 #0 of 1000 f32"),
                                   HasSubstr("called receive from rank 0 #0 of 1001 f32")));
}

using DeviceAndEnd = std::tuple<const char*, const char*>;
class MpiLostRank : public ::testing::TestWithParam<DeviceAndEnd> {};

void expect_lost_rank(const CommandResult& result) {
  expect_failure_within(5, result);
  EXPECT_THAT(result.output, AllOf(HasSubstr("[rank 0] error: rank 1 (host "), HasSubstr("pid "),
                                   HasSubstr("was lost: connection closed")));
}

TEST_P(MpiLostRank, IsNamedByTheSurvivors) {
  const std::string device = std::get<0>(GetParam()), end = std::get<1>(GetParam());
  const std::string reason = missing(device, 2);
  if (!reason.empty()) GTEST_SKIP() << reason;
  expect_lost_rank(mpi_job(2, end + " --device " + device));
}

TEST(MpiLostRankOnGpus, IsNamedWhereDataGoThroughTheHost) {
  const std::string reason = missing("cuda", 2);
  if (!reason.empty()) GTEST_SKIP() << reason;
  expect_lost_rank(mpi_job(2, "kill --device cuda", "JOB_COMM=mpi"));
}
INSTANTIATE_TEST_SUITE_P(OnProcessors, MpiLostRank,
                         ::testing::Combine(::testing::Values("cpu"),
                                            ::testing::Values("kill", "kill-alone", "segv",
                                                              "exit")));
INSTANTIATE_TEST_SUITE_P(OnGpus, MpiLostRank,
                         ::testing::Combine(::testing::Values("cuda"),
                                            ::testing::Values("kill", "exit")));

using RankAndEnd = std::tuple<int, const char*>;
class MpiDeath : public ::testing::TestWithParam<RankAndEnd> {};

TEST_P(MpiDeath, EndsAllAndNamesTheRank) {
  const std::string rank = std::to_string(std::get<0>(GetParam()));
  const auto result = mpi_job(3, std::string(std::get<1>(GetParam())) + " --device cpu",
                              "JOB_COMM=mpi JOB_CULPRIT=" + rank);
  expect_quick_failure(result);
  // Once the others have left, it is for mpirun to say.
  EXPECT_THAT(result.output, AnyOf(HasSubstr("error: rank " + rank + " (host "),
                                   HasSubstr("process rank " + rank + " with PID")));
}
INSTANTIATE_TEST_SUITE_P(Everywhere, MpiDeath,
                         ::testing::Combine(::testing::Values(0, 2),
                                            ::testing::Values("kill", "segv", "sigabrt",
                                                              "kill-alone", "kill-at-exit")));

TEST(MpiJob, ThreadThatDoesNotStartEndsAll) {
  for (int thread = 1; thread <= 5; ++thread) {
    const auto result = mpi_job(2, "sum --device cpu", "JOB_BAD_THREAD=" + std::to_string(thread));
    EXPECT_LT(result.seconds, 30 * timeout_multiplier) << result.output;
    // MPI does without some of its own.
    const bool is_whole = occurrences(result.output, "sum 1") == 2;
    EXPECT_EQ(result.exit_code == 0, is_whole) << thread << ": " << result.output;
  }
}

TEST(MpiJob, DeathWhileJoiningEndsAll) {
  for (int thread = 1; thread <= 5; ++thread) {
    const auto result = mpi_job(2, "sum --device cpu",
                                "JOB_THREAD_KILLS=1 JOB_BAD_THREAD=" + std::to_string(thread));
    EXPECT_LT(result.seconds, 30 * timeout_multiplier) << result.output;
    const bool is_reached = occurrences(result.output, "does not start") > 0;
    EXPECT_EQ(result.exit_code != 0, is_reached) << thread << ": " << result.output;
  }
}

TEST(TcpJob, ExceptionOfOneRankEndsAll) {
  const auto result = tcp_job(2, "throw");
  expect_quick_failure(result);
  EXPECT_EQ(occurrences(result.output, "[rank 1] error: no memory for 7 bytes"), 1u)
      << result.output;
}

TEST(TcpJob, ErrorBehindAnAbortIsSaidInItsStead) {
  const auto result = tcp_job(3, "abort");
  expect_quick_failure(result);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.output, HasSubstr("[rank 1] error: lr must be positive"));
  EXPECT_EQ(occurrences(result.output, "error: "), 1u) << result.output;
}

// Nobody watches it at the time: the control channel is not there yet.
TEST(TcpJob, DeathBetweenTheRendezvousAndTheControlChannelEndsAll) {
  const int port = free_port();
  const auto result =
      run_command(tcp_rank(1, 3, port, "vanish") + " & " + tcp_rank(2, 3, port, "sum") + " & " +
                  tcp_rank(0, 3, port, "sum") + "; code=$?; wait; exit $code");
  EXPECT_NE(result.exit_code, 0) << result.output;
  EXPECT_LT(result.seconds, 20 * timeout_multiplier) << result.output;
  EXPECT_THAT(result.output, HasSubstr("rank 1 closed its connection"));
}

TEST(TcpJob, LostRankIsNamed) {
  const auto result = tcp_job(3, "kill");
  expect_quick_failure(result);
  EXPECT_THAT(result.output, HasSubstr("[rank 0] error: rank 1 (host "));
  EXPECT_THAT(result.output, HasSubstr("[rank 2] error: rank 1 (host "));
}

// Its child holds the connections open, so that nobody hears of its end.
TEST(TcpJob, LostRankThatHadForkedIsFoundInSeconds) {
  const auto result = tcp_job(3, "fork-kill");
  EXPECT_NE(result.exit_code, 0) << result.output;
  EXPECT_LT(result.seconds, 15 * timeout_multiplier) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr("rank 1 (host "), HasSubstr("its process has ended")));
}

}  // namespace
}  // namespace lockstep::testing
