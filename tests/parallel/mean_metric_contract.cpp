// What a mean over batches and ranks must be.

#include <cmath>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/parallel/mean_metric.hpp"
#include "parallel/contracts.hpp"
#include "parallel/ranks.hpp"

namespace lockstep::parallel::testing {
namespace {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MeanMetricContract);

TEST_P(MeanMetricContract, WeighsBatchesOfAllRanks) {
  run([](Communicator& group) {
    const Device device = group.device();
    MeanMetric mean(device);
    // Rank r adds r batches of r + 1 samples each, every sample r + 1: rank 0 has none.
    double values = 0, samples = 0;
    for (int rank = 0; rank < group.size(); ++rank) {
      values += rank * (rank + 1.0) * (rank + 1.0);
      samples += rank * (rank + 1.0);
    }
    const double own = group.rank() + 1.0;
    const Tensor batch = full({group.rank() + 1}, own, {DType::f32, device}).set_requires_grad();
    for (int i = 0; i < group.rank(); ++i) mean.add(sum(batch), own);
    const double expected = values / samples;  // NaN for one rank
    for (int twice = 0; twice < 2; ++twice) {
      const double found = mean.value(group);
      if (group.size() == 1) {
        EXPECT_TRUE(std::isnan(found));
      } else {
        EXPECT_DOUBLE_EQ(found, expected);
      }
    }
    if (group.rank() > 0) {
      EXPECT_DOUBLE_EQ(mean.value(), own);
    }
    mean.reset();
    mean.add(full({}, std::nan(""), {DType::f32, device}), 0);  // of no rows
    mean.add(full({1, 1}, 7, {DType::i64, device}), 2);
    EXPECT_DOUBLE_EQ(mean.value(group), 3.5);
  });
}

}  // namespace
}  // namespace lockstep::parallel::testing
