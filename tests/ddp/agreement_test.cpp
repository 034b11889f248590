#include "lockstep/ddp/agreement.hpp"

#include <gmock/gmock.h>

#include "lockstep/comm/errors.hpp"
#include "lockstep/comm/thread_world.hpp"
#include "lockstep/data/distributed_sampler.hpp"

namespace lockstep::ddp {
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

// D7: a seed that differs would share out some samples twice and others never.
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

}  // namespace
}  // namespace lockstep::ddp
