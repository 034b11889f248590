#include "lockstep/runtime/event.hpp"
#include "lockstep/runtime/stream.hpp"
#include "parallel/clip_contract.hpp"
#include "parallel/collective_contract.hpp"
#include "parallel/divergence_contract.hpp"
#include "parallel/layerwise_contract.hpp"
#include "parallel/mean_metric_contract.hpp"
#include "parallel/mesh_contract.hpp"
#include "support/gpu_ranks.hpp"

namespace lockstep::parallel::testing {
namespace {

struct NcclRanks {
  static void run(const std::function<void(Communicator&)>& body) {
    const std::string missing = lockstep::testing::missing_for_gpu_ranks();
    if (!missing.empty()) GTEST_SKIP() << missing;
    device_of_rank = lockstep::testing::gpu_of_rank();
    lockstep::testing::with_world(body, {}, device_of_rank);
    device_of_rank = cpu;
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Nccl, MeshContract, NcclRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Nccl, ClipContract, NcclRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Nccl, LayerwiseContract, NcclRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Nccl, DivergenceContract, NcclRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Nccl, MeanMetricContract, NcclRanks);
// Labels are compared by the job's Session, which these ranks do not have.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ComparedCollectives);
INSTANTIATE_TYPED_TEST_SUITE_P(Nccl, CollectiveContract, NcclRanks);

// The memory was allocated on one stream, and another one waits for the collective. The simulated
// GPU reports whoever takes the memory before that.
TEST(TensorWorkOnGpus, KeepsItsMemoryForTheStreamThatWaits) {
  NcclRanks::run([](Communicator& group) {
    constexpr std::int64_t count = 1 << 12;
    const TensorOptions options{.dtype = DType::f64, .device = device_of_rank};
    const Stream side(device_of_rank);
    for (int round = 0; round < 4; ++round) {
      TensorWork work = all_gather_async(full({count}, 1.0, options), group);
      {
        const StreamGuard guard(side);
        EXPECT_EQ(work.wait().sum().item(), static_cast<double>(count * group.size()));
      }
      full({count}, 9.0, options);
    }
    side.synchronize();
  });
}

}  // namespace
}  // namespace lockstep::parallel::testing
