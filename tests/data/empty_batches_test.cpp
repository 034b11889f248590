#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/data/concat_dataset.hpp"
#include "lockstep/data/data_loader.hpp"
#include "lockstep/data/tensor_dataset.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/place.hpp"

// Last batches of fewer samples than ranks.

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;

TensorDataset numbers_up_to(std::int64_t end) {
  return TensorDataset({arange(end, {.dtype = DType::f32})});
}

/// How many rows a rank gets in a loop.
template <class Loader>
std::vector<std::int64_t> rows_of_loop(Loader& loader) {
  std::vector<std::int64_t> rows;
  for (auto& batch : loader) rows.push_back(batch[0].size(0));
  return rows;
}

template <class D>
void expect_empty_batches(const D& dataset, Device device = cpu) {
  for (const int workers : {0, 2})
    for (const int rank : {0, 1, 2}) {
      DataLoader loader(dataset, SequentialSampler(dataset.size()),
                        {.batch_size = 8,
                         .allow_empty = true,
                         .rank = rank,
                         .world_size = 3,
                         .num_workers = workers,
                         .device = device});
      const std::int64_t full = rank < 2 ? 3 : 2, rest = rank == 0 ? 1 : 0;
      for (int epoch = 0; epoch < 2; ++epoch)
        EXPECT_THAT(rows_of_loop(loader), ElementsAre(full, full, rest));
      loader.load_state({.epoch = 4, .samples = dataset.size() - 1});
      EXPECT_THAT(rows_of_loop(loader), ElementsAre(rest));
      EXPECT_EQ(loader.state().epoch, 5u);
    }
}

TEST(DataLoader, HandsOutBatchesOfNoSamplesWhereARankHasNoneOfTheLast) {
  expect_empty_batches(numbers_up_to(17));
  expect_empty_batches(ConcatDataset(std::vector{numbers_up_to(9), numbers_up_to(8)}));
}

class EmptyBatchesGpu : public lockstep::testing::OnGpu {};

TEST_F(EmptyBatchesGpu, LieOnTheDevice) { expect_empty_batches(numbers_up_to(17), device); }

}  // namespace
}  // namespace lockstep::data
