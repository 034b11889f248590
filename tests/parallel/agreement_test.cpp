#include "lockstep/parallel/agreement.hpp"

#include <gmock/gmock.h>

#include "lockstep/comm/errors.hpp"
#include "lockstep/comm/thread_world.hpp"
#include "lockstep/data/distributed_sampler.hpp"

namespace lockstep::parallel {
namespace {

using ::testing::HasSubstr;

std::uint64_t signature_of(comm::Communicator& group, std::uint64_t seed) {
  return data::DistributedSampler(100,
                                  {.rank = group.rank(), .world_size = group.size(), .seed = seed})
      .signature();
}

TEST(Agreement, AcceptsSamplersOfOneSeed) {
  comm::run_ranks(3, [](comm::Communicator& group) {
    check_same_value(group, "the sampler's signature", signature_of(group, 4));
  });
}

// A seed that differs would share out some samples twice and others never.
TEST(Agreement, NamesTheRankWhoseSamplerDiffersOnEveryRank) {
  comm::run_ranks(3, [](comm::Communicator& group) {
    const auto signature = signature_of(group, group.rank() == 2 ? 5 : 4);
    try {
      check_same_value(group, "the sampler's signature", signature);
      ADD_FAILURE() << "nothing was noticed";
    } catch (const comm::Mismatch& error) {
      EXPECT_THAT(error.what(), HasSubstr("on rank 2"));
      EXPECT_THAT(error.what(), HasSubstr("the sampler's signature"));
    }
  });
}

using Settings = std::vector<std::pair<std::string, std::string>>;

std::string refusal_of(comm::Communicator& group, const Settings& settings) {
  try {
    check_same_settings(group, settings);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing was noticed";
}

TEST(Agreement, AcceptsEqualSettings) {
  comm::run_ranks(3, [](comm::Communicator& group) {
    check_same_settings(group, Settings{{"--lr", "0.1"}, {"--note", ""}, {"--text", "a\nb"}});
    check_same_settings(group, Settings{});
  });
}

TEST(Agreement, NamesTheSettingThatDiffersAndBothValuesOnEveryRank) {
  comm::run_ranks(3, [](comm::Communicator& group) {
    const Settings settings{{"--steps", "5"}, {"--lr", group.rank() == 2 ? "" : "0.1"}};
    EXPECT_THAT(refusal_of(group, settings), HasSubstr("--lr is 0.1 on rank 0 but  on rank 2"));
  });
}

TEST(Agreement, RefusesRanksWithOtherSettings) {
  comm::run_ranks(2, [](comm::Communicator& group) {
    const bool first = group.rank() == 0;
    EXPECT_THAT(refusal_of(group, {{first ? "--lr" : "--rate", "1"}}),
                HasSubstr("rank 1 has the setting --rate where rank 0 has --lr"));
    EXPECT_THAT(refusal_of(group, Settings(first ? 1 : 2, {"--lr", "1"})),
                HasSubstr("rank 1 has 2 settings but rank 0 has 1"));
  });
}

}  // namespace
}  // namespace lockstep::parallel
