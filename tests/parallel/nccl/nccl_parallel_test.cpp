#include "lockstep/autograd/ops.hpp"
#include "lockstep/parallel/collectives.hpp"
#include "lockstep/parallel/tensor_work.hpp"
#include "lockstep/runtime/event.hpp"
#include "lockstep/runtime/stream.hpp"
#include "parallel/contracts.hpp"
#include "parallel/gpu_groups.hpp"
#include "parallel/ranks.hpp"

namespace lockstep::parallel::testing {
namespace {

using lockstep::testing::name_of_ranks;

const auto gpus = ::testing::Values(ranks_over_nccl);
INSTANTIATE_TEST_SUITE_P(Nccl, MeshContract, gpus, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Nccl, ClipContract, gpus, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Nccl, LayerwiseContract, gpus, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Nccl, DivergenceContract, gpus, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Nccl, MeanMetricContract, gpus, name_of_ranks);
// Labels are compared by the job's Session, which these ranks do not have.
INSTANTIATE_TEST_SUITE_P(Nccl, CollectiveContract, gpus, name_of_ranks);

// The memory was allocated on one stream, and another one waits for the collective. The simulated
// GPU reports whoever takes the memory before that.
TEST(TensorWorkOnGpus, KeepsItsMemoryForTheStreamThatWaits) {
  run_over_nccl([](Communicator& group) {
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
