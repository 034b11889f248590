// Jobs that train, of which a rank does otherwise than the others.

#include <regex>
#include <string>

#include "comm/jobs/jobs.hpp"
#include "support/machine_load.hpp"

namespace lockstep::testing {
namespace {

// The job's one message, whose further lines are indented, without what ranks did before.
std::string line_of_error(const std::string& output) {
  static const std::regex error(R"((^|\n)(\[rank \d+\] )?error: [^\n]*(\n  [^\n]*)*)");
  std::smatch found;
  return std::regex_search(output, found, error) ? found.str() : std::string();
}

void expect_all_parameters_of_the_tower(const std::string& text) {
  for (int layer = 0; layer < 20; ++layer)
    for (const std::string name : {".weight", ".bias"})
      EXPECT_THAT(text, HasSubstr("encoder_layer_" + std::to_string(layer) + name));
}

TEST_P(MpiFaults, TimeoutInABucketNamesItsParameters) {
  const auto result =
      mpi_job(2, std::string("hang-in-tower --device ") + GetParam(), "LOCKSTEP_TIMEOUT=2");
  expect_quick_failure(result);
  const std::string error = line_of_error(result.output);
  EXPECT_THAT(error, AllOf(HasSubstr("after update 2"), HasSubstr("bucket 0 ("),
                           HasSubstr("timed out after 2000 ms, waiting for rank 1")))
      << result.output;
  expect_all_parameters_of_the_tower(error);
}

TEST(MpiJobOnGpus, TimeoutInACapturedStepNamesParameters) {
  const std::string reason = missing("cuda", 2);
  if (!reason.empty()) GTEST_SKIP() << reason;
  const auto result = mpi_job(2, "hang-in-captured-tower --device cuda", "LOCKSTEP_TIMEOUT=2");
  expect_quick_failure(result);
  const std::string error = line_of_error(result.output);
  EXPECT_THAT(error, AllOf(HasSubstr("in a captured step '40 parameters after update 5"),
                           HasSubstr("timed out after 2000 ms, waiting for rank 1")))
      << result.output;
  expect_all_parameters_of_the_tower(error);
}

TEST_P(MpiFaults, DisagreementAboutABucketNamesItsParameters) {
  const auto result = job(2, "skip-step-of-tower");
  expect_quick_failure(result);
  const std::string error = line_of_error(result.output);
  EXPECT_THAT(error, AllOf(HasSubstr("disagree"), HasSubstr("step 3"), HasSubstr("step 4")))
      << result.output;
  expect_all_parameters_of_the_tower(error);
}

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
  const std::string words = "rank 1 held the others up for ";
  const std::size_t at = result.output.find(words);
  ASSERT_NE(at, std::string::npos) << result.output;
  // It takes twenty times what the others take; on a busy machine these come late, too.
  const double share = std::stod(result.output.substr(at + words.size()));
  EXPECT_GE(share * machine_load(), 80) << result.output;
  EXPECT_THAT(result.output, HasSubstr("% of the last 19 steps"));
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
