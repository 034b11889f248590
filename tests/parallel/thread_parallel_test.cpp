#include <atomic>
#include <stdexcept>
#include <thread>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/comm/thread_world.hpp"
#include "lockstep/memory/memory_stats.hpp"
#include "lockstep/parallel/collectives.hpp"
#include "lockstep/parallel/mesh.hpp"
#include "lockstep/parallel/tensor_work.hpp"
#include "parallel/contracts.hpp"
#include "parallel/ranks.hpp"

namespace lockstep::parallel::testing {
namespace {

using lockstep::testing::name_of_ranks, lockstep::testing::threads;

const auto collective_groups = ::testing::Values(threads(1), threads(2), threads(3), threads(4));
INSTANTIATE_TEST_SUITE_P(Thread, MeshContract, collective_groups, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Thread, ClipContract, collective_groups, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Thread, LayerwiseContract, collective_groups, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Thread, DivergenceContract, collective_groups, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Thread, MeanMetricContract, collective_groups, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Thread, CollectiveContract, collective_groups, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Thread, ComparedCollectives, collective_groups, name_of_ranks);

TEST(Mesh, FormsGroupsOverTwoOfThreeAxes) {
  comm::run_ranks(8, [](Communicator& world) {
    const Mesh mesh(share(world), {{"pipeline", 2}, {"data", 2}, {"tensor", 2}});
    const CommunicatorPtr replica = mesh.make_group({"tensor", "pipeline"});
    EXPECT_EQ(replica->size(), 4);
    EXPECT_EQ(replica->rank(), 2 * mesh.coordinate("pipeline") + mesh.coordinate("tensor"));
    const Tensor data = full({1}, mesh.coordinate("data"), {.dtype = DType::f64});
    expect_close(all_reduce(data, replica, ResultGradient::partial), data * 4.0);
  });
}

TEST(TensorWork, HoldsWhatAPeerHasNotReadYet) {
  std::atomic<bool> reused{false};
  comm::run_ranks(2, [&](Communicator& group) {
    constexpr std::int64_t count = 1 << 16;
    if (group.rank() == 0) {
      { const TensorWork dropped = all_gather_async(full({count}, 1.0), group); }
      for (int i = 0; i < 4; ++i) full({count}, 7.0);
      reused = true;
      EXPECT_EQ(all_reduce_async(full({1}, 1.0), group).wait().item(), 2.0);
      return;
    }
    while (!reused) std::this_thread::yield();
    TensorWork late = all_gather_async(full({count}, 1.0), group);
    EXPECT_EQ(late.wait().sum().item(), 2.0 * count);
    all_reduce_async(full({1}, 1.0), group).wait();
  });
}

TEST(TensorWork, OfABatchThatIsGivenUpHoldsNothing) {
  const std::size_t before = memory_allocated(cpu);
  comm::run_ranks(2, [&](Communicator& group) {
    for (int i = 0; i < 4; ++i)
      EXPECT_THROW(group.batch([&] {
        const TensorWork dropped = all_reduce_async(full({1 << 16}, 1.0), group);
        throw std::runtime_error("the body gives up");
      }),
                   std::runtime_error);
    all_reduce_async(full({8}, 1.0), group).wait();  // frees what earlier ones hold
  });
  EXPECT_LT(memory_allocated(cpu), before + (std::size_t{1} << 18));
}

TEST(TensorWork, MayBeDroppedWithAGroupThatFails) {
  EXPECT_THROW(comm::run_ranks(2,
                               [](Communicator& group) {
                                 if (group.rank() == 1) LOCKSTEP_THROW(InvalidArgument, "left");
                                 TensorWork first = all_reduce_async(full({64}, 1.0), group);
                                 const TensorWork second = all_reduce_async(full({8}, 1.0), group);
                                 first.wait();
                               }),
               Error);
}

}  // namespace
}  // namespace lockstep::parallel::testing
