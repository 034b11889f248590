// Jobs that train, of which a rank does otherwise than the others.

#include "comm/jobs/jobs.hpp"

namespace lockstep::testing {
namespace {

TEST_P(MpiFaults, RankThatSkipsABackwardIsNamed) {
  const auto result = job(2, "skip-backward");
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.output, AllOf(HasSubstr("the ranks of world disagree"), HasSubstr("step 2"),
                                   HasSubstr("step 3")));
}

TEST_P(MpiFaults, RanksThatDisagreeSayWhatTheyDidBefore) {
  const auto result = mpi_job(3, std::string("skip-backward --device ") + GetParam());
  for (const std::string rank : {"[rank 0] ", "[rank 1] ", "[rank 2] "}) {
    // Over NCCL, where calls are compared meanwhile, the one that is ahead may have left its group.
    if (GetParam() == std::string("cuda") && rank == "[rank 1] ") continue;
    EXPECT_THAT(result.output, HasSubstr(rank + "rank " + rank[6] + " of world: "));
    EXPECT_THAT(result.output, HasSubstr(rank + "  before: all_reduce #"));
  }
  EXPECT_THAT(result.output, AllOf(HasSubstr(", took "), HasSubstr(" ms ago")));
}

TEST_P(MpiFaults, LateRankIsWaitedForAndNamedInTheEnd) {
  const auto result = mpi_job(3, std::string("slow-training --device ") + GetParam());
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(occurrences(result.output, "ends with"), 3u) << result.output;
  EXPECT_THAT(result.output, HasSubstr("% of the last 19 steps"));
  // By the simulated GPU's clock collectives begin once all ranks are there.
  if (GetParam() == std::string("cpu")) {
    EXPECT_THAT(result.output, HasSubstr("rank 1 held the others up for "));
  }
}

TEST_P(MpiFaults, RankWithAnotherLearningRateIsNamed) {
  const auto result = job(2, "other-rate");
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("the ranks of world disagree"), HasSubstr("update 2 with lr 0.125"),
                    HasSubstr("update 2 with lr 0.25")));
}

// No collective follows it.
TEST_P(MpiFaults, RankWithAnotherLearningRateInTheLastUpdateIsNamed) {
  const auto result = job(2, "other-last-rate");
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("rank 0 with '2 parameters after update 4 with lr 0.125"),
                    HasSubstr("rank 1 with '2 parameters after update 4 with lr 0.25")));
  EXPECT_EQ(occurrences(result.output, "error: "), 1u) << result.output;
}

TEST_P(MpiFaults, RankWithAnotherLearningRateInAWrapperThatOutlivesTheJobIsNamed) {
  const auto result = job(2, "other-rate-for-ever");
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("update 1 with lr 0.125"), HasSubstr("update 1 with lr 0.25")));
}

TEST_P(MpiFaults, RankThatClipsOverTheGroupAloneIsNamed) {
  const auto result = job(2, "clip-alone");
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.output, AllOf(HasSubstr("the ranks of world disagree"), HasSubstr("bucket 0"),
                                   HasSubstr("rank 1 called all_reduce")));
}

TEST_P(MpiFaults, RanksMayWrapTheirModelsAgainAndAgain) {
  const auto result = job(2, "wrap-again");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(occurrences(result.output, "ends with"), 2u) << result.output;
}

}  // namespace
}  // namespace lockstep::testing
