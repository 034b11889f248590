#include "lockstep/comm/thread_world.hpp"
#include "parallel/bucket_reduction_contract.hpp"
#include "parallel/replica_contract.hpp"
#include "parallel/rewrapping_contract.hpp"
#include "parallel/step_graph_contract.hpp"
#include "parallel/sync_batch_norm_contract.hpp"
#include "parallel/use_contract.hpp"
#include "parallel/user_hook_contract.hpp"

namespace lockstep::parallel::testing {
namespace {

template <int ranks>
struct Threads {
  static void run(const std::function<void(Communicator&)>& body) { comm::run_ranks(ranks, body); }
};

using ThreadWorlds = ::testing::Types<Threads<1>, Threads<2>, Threads<3>, Threads<4>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Thread, ReplicaContract, ThreadWorlds);
INSTANTIATE_TYPED_TEST_SUITE_P(Thread, UseContract, ThreadWorlds);
INSTANTIATE_TYPED_TEST_SUITE_P(Thread, UserHookContract, ThreadWorlds);
INSTANTIATE_TYPED_TEST_SUITE_P(Thread, RewrappingContract, ThreadWorlds);
INSTANTIATE_TYPED_TEST_SUITE_P(Thread, StepGraphContract, ThreadWorlds);
INSTANTIATE_TYPED_TEST_SUITE_P(Thread, SyncBatchNormContract, ThreadWorlds);
INSTANTIATE_TYPED_TEST_SUITE_P(Thread, BucketReductionContract, ThreadWorlds);

TEST(SyncBatchNorm, RefusesRanksThatDiffer) {
  const auto refused = [](const std::function<void(Communicator&)>& body) {
    EXPECT_THROW(comm::run_ranks(2, body), Error);
  };
  refused([](Communicator& group) {
    const std::int64_t channels = group.rank() == 0 ? 3 : 4;
    nn::make<nn::SyncBatchNorm>(nn::BatchNormLayerOptions{.channels = channels},
                                share(group))(randn({2, channels}));
  });
  refused([](Communicator& group) {
    const auto norm = nn::make<nn::SyncBatchNorm>(
        nn::BatchNormLayerOptions{.channels = 3, .affine = false}, share(group));
    norm(randn({2, 3}).set_requires_grad(group.rank() == 0));
  });
}

}  // namespace
}  // namespace lockstep::parallel::testing
