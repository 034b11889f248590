#include "lockstep/data/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/core/error.hpp"
#include "lockstep/data/batch_sampler.hpp"
#include "lockstep/data/distributed_sampler.hpp"
#include "lockstep/data/permutation.hpp"
#include "lockstep/data/stored_order_sampler.hpp"

namespace lockstep::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Indices = std::vector<std::int64_t>;

Indices iota(std::int64_t count) {
  Indices indices(static_cast<std::size_t>(count));
  std::iota(indices.begin(), indices.end(), std::int64_t{0});
  return indices;
}

Indices sorted(Indices indices) {
  std::ranges::sort(indices);
  return indices;
}

// The orders of all ranks of one epoch.
std::vector<Indices> shards(std::int64_t size, DistributedSamplerOptions options,
                            std::uint64_t epoch) {
  std::vector<Indices> all;
  for (options.rank = 0; options.rank < options.world_size; ++options.rank)
    all.push_back(DistributedSampler(size, options).order(epoch));
  return all;
}

Indices joined(const std::vector<Indices>& parts) {
  Indices all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return sorted(std::move(all));
}

TEST(Permutation, HoldsEveryIndexOnce) {
  for (const std::int64_t count : {0, 1, 2, 3, 100, 4097})
    EXPECT_EQ(sorted(random_permutation(count, 5, 1)), iota(count));
}

TEST(Permutation, FollowsFromItsArgumentsAlone) {
  EXPECT_EQ(random_permutation(100, 1, 2), random_permutation(100, 1, 2));
  EXPECT_NE(random_permutation(100, 1, 2), random_permutation(100, 1, 3));
  EXPECT_NE(random_permutation(100, 1, 2), random_permutation(100, 2, 2));
  // Written down once, so that no later change reorders the data of a resumed run.
  EXPECT_EQ(random_permutation(8, 0, 0), (Indices{6, 4, 0, 5, 7, 3, 2, 1}));
}

TEST(Permutation, DrawsAllOrdersEquallyOften) {
  std::map<Indices, int> count;
  constexpr int draws = 24'000;
  for (int epoch = 0; epoch < draws; ++epoch)
    ++count[random_permutation(4, 9, static_cast<std::uint64_t>(epoch))];
  ASSERT_EQ(count.size(), 24u);
  double chi_squared = 0;
  for (const auto& [order, n] : count) chi_squared += (n - 1000.0) * (n - 1000.0) / 1000.0;
  EXPECT_LT(chi_squared, 49.7);  // 0.999 quantile for 23 degrees of freedom
}

TEST(Permutation, IsComputedAtAnyPlaceOfAnySize) {
  for (const std::int64_t count : {1, 2, 3, 100, 255, 256, 257, 4097}) {
    const Permutation permutation(count, 5, 1);
    Indices all;
    for (std::int64_t i = 0; i < count; ++i) all.push_back(permutation(i));
    EXPECT_EQ(sorted(all), iota(count)) << count;
  }
  constexpr std::int64_t huge = std::int64_t{1} << 62;
  const Permutation permutation(huge, 5, 1);
  for (const std::int64_t position : {std::int64_t{0}, huge / 3, huge - 1}) {
    EXPECT_GE(permutation(position), 0);
    EXPECT_LT(permutation(position), huge);
  }
  EXPECT_THROW(permutation(huge), InvalidArgument);
  EXPECT_THROW(permutation(-1), InvalidArgument);
  EXPECT_THROW(Permutation(-1, 0, 0), InvalidArgument);
  EXPECT_THROW(Permutation(0, 0, 0)(0), InvalidArgument);
}

TEST(Permutation, ComputedFollowsFromItsArgumentsAlone) {
  // Written down once, so that no later change reorders the data of a resumed run.
  EXPECT_EQ(RandomSampler(8, 0).order(0), (Indices{6, 0, 3, 2, 7, 5, 1, 4}));
  EXPECT_NE(RandomSampler(100, 1).order(2), RandomSampler(100, 1).order(3));
  EXPECT_NE(RandomSampler(100, 1).order(2), RandomSampler(100, 2).order(2));
}

TEST(Permutation, ComputedOnesComeAllEquallyOften) {
  std::map<Indices, int> count;
  for (std::uint64_t epoch = 0; epoch < 120'000; ++epoch) ++count[RandomSampler(5, 9).order(epoch)];
  ASSERT_EQ(count.size(), 120u);
  double chi_squared = 0;
  for (const auto& [order, n] : count) chi_squared += (n - 1000.0) * (n - 1000.0) / 1000.0;
  EXPECT_LT(chi_squared, 171.9);  // 0.999 quantile for 119 degrees of freedom
}

// What a uniform permutation of n numbers has on average, and by how much it varies.
struct Moments {
  double mean, variance;
};

TEST(Permutation, ComputedOnesLookLikeUniformDraws) {
  for (const std::int64_t count : {17, 1000, 60'000}) {
    const auto n = static_cast<double>(count);
    double displacement = 0, descents = 0, fixed = 0, repeated = 0;
    constexpr int epochs = 50;
    Indices previous = RandomSampler(count, 5).order(1000);
    for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
      const Indices order = RandomSampler(count, 5).order(epoch);
      for (std::size_t i = 0; i < order.size(); ++i) {
        displacement += std::abs(static_cast<double>(order[i]) - static_cast<double>(i));
        descents += i > 0 && order[i] < order[i - 1];
        fixed += order[i] == static_cast<std::int64_t>(i);
        repeated += order[i] == previous[i];
      }
      previous = order;
    }
    const auto expect_near = [&](double sum, Moments moments) {
      EXPECT_LT(std::abs(sum / epochs - moments.mean), 3 * std::sqrt(moments.variance / epochs))
          << count;
    };
    // Diaconis and Graham, "Spearman's footrule as a measure of disarray" (1977).
    expect_near(displacement, {(n * n - 1) / 3, (n + 1) * (2 * n * n + 7) / 45});
    expect_near(descents, {(n - 1) / 2, (n + 1) / 12});
    expect_near(fixed, {1, 1});
    expect_near(repeated, {1, 1});
  }
}

TEST(FisherYatesSampler, GivesTheOrderOfRandomPermutations) {
  const FisherYatesSampler sampler(50, 3);
  EXPECT_EQ(sampler.order(2), random_permutation(50, 3, 2));
  Indices part(5);
  sampler.indices(2, 10, part);
  const Indices whole = sampler.order(2);
  EXPECT_EQ(part, Indices(whole.begin() + 10, whole.begin() + 15));
  EXPECT_THROW(sampler.indices(2, 46, part), InvalidArgument);
}

// Every other sample, of which it forgets some.
class Forgetful : public StoredOrderSampler {
 public:
  std::int64_t size() const override { return 10; }

 protected:
  std::vector<std::int64_t> draw(std::uint64_t) const override { return {0, 2, 4}; }
};

TEST(StoredOrderSampler, RefusesAnOrderOfAnotherSize) {
  EXPECT_THAT(
      [] { Forgetful().order(3); },
      ThrowsMessage<InvalidArgument>(HasSubstr("gave 3 indices for epoch 3, but its size is 10")));
}

TEST(Sampler, SignatureOfTheOrderLeavesOutWhoSharesIt) {
  const std::uint64_t shuffled = RandomSampler(20, 4).order_signature();
  EXPECT_NE(shuffled, RandomSampler(21, 4).order_signature());
  EXPECT_NE(shuffled, RandomSampler(20, 5).order_signature());
  EXPECT_NE(shuffled, FisherYatesSampler(20, 4).order_signature());
  EXPECT_NE(shuffled, SequentialSampler(20).order_signature());
  EXPECT_EQ(shuffled, DistributedSampler(20, {.world_size = 2, .seed = 4}).order_signature());
  EXPECT_EQ(shuffled,
            DistributedSampler(20, {.rank = 2, .world_size = 3, .seed = 4}).order_signature());
}

TEST(RandomSampler, ChangesItsOrderEveryEpochByItself) {
  const RandomSampler sampler(50, 3);
  std::set<Indices> orders;
  for (std::uint64_t epoch = 0; epoch < 20; ++epoch) {
    orders.insert(sampler.order(epoch));
    EXPECT_EQ(sorted(sampler.order(epoch)), iota(50));
  }
  EXPECT_EQ(orders.size(), 20u);
}

TEST(Sampler, RefusesAnEmptyDataSetByName) {
  const auto message = ThrowsMessage<InvalidArgument>(HasSubstr("data set is empty"));
  EXPECT_THAT([] { SequentialSampler(0); }, message);
  EXPECT_THAT([] { RandomSampler(0); }, message);
  EXPECT_THAT([] { DistributedSampler(0, {.world_size = 2}); }, message);
}

TEST(DistributedSampler, ShardsPartitionTheDataSetExactly) {
  for (const int world : {1, 2, 3, 4, 7})
    for (const std::int64_t size : {7, 8, 12, 100, 101})
      for (const bool shuffle : {false, true})
        EXPECT_EQ(joined(shards(size,
                                {.world_size = world,
                                 .shuffle = shuffle,
                                 .seed = 4,
                                 .remainder = Remainder::uneven},
                                3)),
                  iota(size));
}

TEST(DistributedSampler, PadsOrDropsSoThatAllRanksHaveAsMany) {
  for (const int world : {2, 3, 4, 7})
    for (const std::int64_t size : {7, 8, 100, 101}) {
      const auto padded = shards(size, {.world_size = world}, 1);
      const auto dropped = shards(size, {.world_size = world, .remainder = Remainder::drop}, 1);
      for (const auto& shard : padded) EXPECT_EQ(shard.size(), padded[0].size());
      for (const auto& shard : dropped) EXPECT_EQ(shard.size(), dropped[0].size());
      const auto all = joined(padded);
      EXPECT_EQ(std::set(all.begin(), all.end()).size(), static_cast<std::size_t>(size));
      EXPECT_LT(all.size(), static_cast<std::size_t>(size + world));
      const auto some = joined(dropped);
      EXPECT_EQ(std::set(some.begin(), some.end()).size(), some.size());
      EXPECT_GT(some.size(), static_cast<std::size_t>(size - world));
    }
}

TEST(DistributedSampler, ChangesItsOrderEveryEpochByItself) {
  const DistributedSampler sampler(40, {.rank = 1, .world_size = 2});
  EXPECT_NE(sampler.order(0), sampler.order(1));
  EXPECT_EQ(sampler.order(1), sampler.order(1));
}

TEST(DistributedSampler, RanksTogetherTakeTheBatchesOfOneProcess) {
  const Indices whole = RandomSampler(24, 6).order(2);
  const auto parts = shards(24, {.world_size = 3, .seed = 6}, 2);
  for (std::size_t batch = 0; batch < 4; ++batch) {
    Indices together;
    for (const auto& part : parts)
      together.insert(together.end(), part.begin() + static_cast<std::ptrdiff_t>(batch * 2),
                      part.begin() + static_cast<std::ptrdiff_t>(batch * 2 + 2));
    EXPECT_EQ(sorted(together),
              sorted(Indices(whole.begin() + static_cast<std::ptrdiff_t>(batch * 6),
                             whole.begin() + static_cast<std::ptrdiff_t>(batch * 6 + 6))));
  }
}

TEST(DistributedSampler, SignatureShowsWhetherRanksAgree) {
  const auto signature = [](std::int64_t size, DistributedSamplerOptions options) {
    return DistributedSampler(size, options).signature();
  };
  const auto one = signature(10, {.rank = 0, .world_size = 2});
  EXPECT_EQ(one, signature(10, {.rank = 1, .world_size = 2}));
  EXPECT_NE(one, signature(11, {.rank = 1, .world_size = 2}));
  EXPECT_NE(one, signature(10, {.rank = 1, .world_size = 3}));
  EXPECT_NE(one, signature(10, {.rank = 1, .world_size = 2, .seed = 1}));
  EXPECT_NE(one, signature(10, {.rank = 1, .world_size = 2, .shuffle = false}));
  EXPECT_NE(one, signature(10, {.rank = 1, .world_size = 2, .remainder = Remainder::drop}));
}

TEST(DistributedSampler, NamesWhatCannotBeShared) {
  EXPECT_THAT([] { DistributedSampler(3, {.world_size = 4}); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("3 samples cannot be shared by 4 ranks; use at most 3")));
  EXPECT_THAT([] { DistributedSampler(3, {.rank = 2, .world_size = 2}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("rank 2 is outside 0 to 1")));
  EXPECT_THROW(DistributedSampler(3, {.rank = -1}), InvalidArgument);
  EXPECT_THROW(DistributedSampler(3, {.world_size = 0}), InvalidArgument);
}

TEST(BatchSampler, CutsTheOrderIntoBatches) {
  const BatchSampler batches(SequentialSampler(7), {.batch_size = 3});
  ASSERT_EQ(batches.size(), 3);
  EXPECT_THAT(batches.indices(0, 1), ::testing::ElementsAre(3, 4, 5));
  EXPECT_THAT(batches.indices(0, 2), ::testing::ElementsAre(6));
  EXPECT_EQ(BatchSampler(SequentialSampler(7), {.batch_size = 3, .drop_last = true}).size(), 2);
  EXPECT_THROW(batches.indices(0, 3), InvalidArgument);
}

TEST(BatchSampler, SplitsEachBatchOverRanksContiguously) {
  Indices together;
  std::vector<std::size_t> sizes;
  for (int rank = 0; rank < 3; ++rank) {
    const BatchSampler batches(SequentialSampler(16),
                               {.batch_size = 8, .rank = rank, .world_size = 3});
    const auto part = batches.indices(0, 1);
    sizes.push_back(part.size());
    together.insert(together.end(), part.begin(), part.end());
  }
  EXPECT_THAT(sizes, ::testing::ElementsAre(3, 3, 2));
  EXPECT_THAT(together, ::testing::ElementsAre(8, 9, 10, 11, 12, 13, 14, 15));
}

TEST(BatchSampler, LeavesRanksWithoutASampleOfTheLastBatchWhereThatIsAllowed) {
  const auto batches = [](int rank, std::int64_t batch_size) {
    return BatchSampler(
        SequentialSampler(9),
        {.batch_size = batch_size, .allow_empty = true, .rank = rank, .world_size = 2});
  };
  const BatchSampler second = batches(1, 4);
  EXPECT_EQ(second.size(), 3);
  EXPECT_THAT(batches(0, 4).indices(0, 2), ::testing::ElementsAre(8));
  EXPECT_THAT(second.indices(0, 2), ::testing::IsEmpty());
  EXPECT_EQ(second.consumed(3), 9);
  EXPECT_NO_THROW(second.check_consumed(8));
  EXPECT_THAT([&] { batches(0, 1); },
              ThrowsMessage<InvalidArgument>(HasSubstr("use a larger batch_size")));
}

TEST(BatchSampler, GoesOnAnywhereInAnEpoch) {
  const BatchSampler batches(SequentialSampler(20), {.batch_size = 6});
  EXPECT_EQ(batches.size(5), 3);
  EXPECT_THAT(batches.indices(0, 0, 5), ::testing::ElementsAre(5, 6, 7, 8, 9, 10));
  EXPECT_THAT(batches.indices(0, 2, 5), ::testing::ElementsAre(17, 18, 19));
  EXPECT_EQ(batches.consumed(2, 5), 17);
  EXPECT_EQ(batches.consumed(3, 5), 20);
  EXPECT_EQ(batches.size(20), 0);
}

TEST(BatchSampler, CountsTheSamplesOfAllRanksThatShareThem) {
  const BatchSampler batches(DistributedSampler(20, {.rank = 1, .world_size = 2, .shuffle = false}),
                             {.batch_size = 3});
  EXPECT_EQ(batches.consumed(1), 6);
  EXPECT_THAT(batches.indices(0, 0, 6), ::testing::ElementsAre(7, 9, 11));
  EXPECT_THAT([&] { batches.check_consumed(7); },
              ThrowsMessage<InvalidArgument>(HasSubstr("cannot go on after 7 samples")));
}

TEST(BatchSampler, NamesBatchesThatCannotBe) {
  const SequentialSampler ten(10);
  EXPECT_THROW(BatchSampler(ten, {.batch_size = 0}), InvalidArgument);
  EXPECT_THAT([&] { BatchSampler(ten, {.batch_size = 16, .drop_last = true}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("10 samples make no batch of 16")));
  EXPECT_THAT(
      [&] { BatchSampler(ten, {.batch_size = 8, .world_size = 3}); },
      ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("2 samples"), HasSubstr("allow_empty"))));
  EXPECT_THROW(BatchSampler(ten, {.batch_size = 2, .rank = 1}), InvalidArgument);
}

}  // namespace
}  // namespace lockstep::data
