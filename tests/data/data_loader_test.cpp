#include "lockstep/data/data_loader.hpp"

#include <atomic>
#include <chrono>
#include <ctime>
#include <memory>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>

#include "lockstep/data/distributed_sampler.hpp"

namespace lockstep::data {
namespace {

using Indices = std::vector<std::int64_t>;

// Gives back the indices asked for; the first of each pair of batches takes longer than the second.
struct Echo {
  std::int64_t count = 20;
  std::int64_t fails_at = -1;
  std::chrono::microseconds delay{0};
  std::shared_ptr<std::atomic<int>> fetches = std::make_shared<std::atomic<int>>(0);

  std::int64_t size() const { return count; }
  Indices fetch(std::span<const std::int64_t> indices) const {
    ++*fetches;
    if (indices[0] / 2 % 2 == 0) std::this_thread::sleep_for(delay);
    for (const auto index : indices)
      if (index == fails_at) throw std::runtime_error("sample " + std::to_string(index));
    return {indices.begin(), indices.end()};
  }
};

template <class Loader>
std::vector<Indices> epoch(Loader& loader) {
  std::vector<Indices> batches;
  for (auto& batch : loader) batches.push_back(batch);
  return batches;
}

class DataLoaderTest : public ::testing::TestWithParam<int> {
 protected:
  DataLoaderOptions options(std::int64_t batch_size = 2) const {
    return {.batch_size = batch_size, .num_workers = GetParam(), .prefetch = 3};
  }
};

TEST_P(DataLoaderTest, HandsBatchesOutInTheSamplersOrder) {
  DataLoader loader(Echo{.delay = std::chrono::microseconds(300)}, RandomSampler(20, 4),
                    options(3));
  const Indices order = RandomSampler(20, 4).order(0);
  Indices seen;
  for (const auto& batch : loader) seen.insert(seen.end(), batch.begin(), batch.end());
  EXPECT_EQ(seen, order);
  EXPECT_EQ(loader.size(), 7);
}

TEST_P(DataLoaderTest, BeginsAnotherEpochWithEachLoop) {
  DataLoader loader(Echo{}, RandomSampler(20), options());
  const auto first = epoch(loader), second = epoch(loader);
  EXPECT_EQ(first.size(), 10u);
  EXPECT_EQ(second.size(), 10u);
  EXPECT_NE(first, second);
  EXPECT_EQ(loader.state(), (LoaderState{2, 0}));
}

TEST_P(DataLoaderTest, CarriesExceptionsToTheBatchTheyBelongTo) {
  DataLoader loader(Echo{.fails_at = 9}, SequentialSampler(20), options());
  int batches = 0;
  try {
    for ([[maybe_unused]] auto& batch : loader) ++batches;
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "sample 9");
  }
  EXPECT_EQ(batches, 4);
}

TEST_P(DataLoaderTest, StaysUsableAfterAnException) {
  DataLoader loader(Echo{.fails_at = 0}, SequentialSampler(20), options());
  EXPECT_THROW(loader.begin(), std::runtime_error);
  EXPECT_THROW(epoch(loader), std::runtime_error);
}

TEST_P(DataLoaderTest, KnowsWhereToGoOnAfterAnException) {
  for (const std::int64_t sample : {9, 19}) {
    DataLoader loader(Echo{.fails_at = sample}, SequentialSampler(20), options());
    auto batch = loader.begin();
    for (std::int64_t i = 0; i < sample / 2 - 1; ++i) ++batch;
    EXPECT_THROW(++batch, std::runtime_error);
    EXPECT_EQ(loader.state(), (LoaderState{0, sample / 2}));
    EXPECT_FALSE(batch == loader.end());
    EXPECT_THROW(*batch, InvalidArgument);
    ++batch;  // leaves it out
    EXPECT_EQ(batch == loader.end(), sample == 19);
    EXPECT_EQ(loader.state(), sample == 19 ? LoaderState({1, 0}) : LoaderState({0, 6}));
  }
}

TEST_P(DataLoaderTest, LeavesAnEpochEarlyAndBeginsTheNext) {
  DataLoader loader(Echo{.delay = std::chrono::microseconds(100)}, RandomSampler(20), options());
  for ([[maybe_unused]] auto& batch : loader) break;
  const auto second = epoch(loader);
  DataLoader other(Echo{}, RandomSampler(20), options());
  epoch(other);
  EXPECT_EQ(second, epoch(other));
}

TEST_P(DataLoaderTest, EndsCleanlyInTheMiddleOfAnEpoch) {
  for (int round = 0; round < 50; ++round) {
    DataLoader loader(Echo{.delay = std::chrono::microseconds(50)}, RandomSampler(20), options());
    int left = round % 11;
    for ([[maybe_unused]] auto& batch : loader)
      if (left-- == 0) break;
  }
}

TEST_P(DataLoaderTest, ResumesAfterEveryBatch) {
  DataLoader whole(Echo{}, RandomSampler(20, 8), options(3));
  std::vector<Indices> expected;
  std::vector<LoaderState> states;
  for (int i = 0; i < 2; ++i)
    for (auto& batch : whole) {
      expected.push_back(batch);
      states.push_back(whole.state());
    }
  for (std::size_t done = 0; done < states.size(); ++done) {
    DataLoader resumed(Echo{}, RandomSampler(20, 8), options(3));
    resumed.load_state(states[done]);
    std::vector<Indices> rest;
    while (resumed.state().epoch < 2)
      for (auto& batch : resumed) rest.push_back(batch);
    EXPECT_EQ(rest, std::vector<Indices>(expected.begin() + static_cast<std::ptrdiff_t>(done) + 1,
                                         expected.end()));
  }
}

TEST_P(DataLoaderTest, BeginsTheNextEpochAfterLeavingOneThatWasLoadedFromItsStart) {
  DataLoader loader(Echo{}, SequentialSampler(20), options());
  loader.load_state({});
  for (const auto& batch : loader)
    if (batch[0] == 4) break;
  EXPECT_EQ((*loader.begin())[0], 0);
  EXPECT_EQ(loader.state(), (LoaderState{1, 1}));
}

TEST_P(DataLoaderTest, RefusesAStateOfAnotherDataSet) {
  DataLoader loader(Echo{}, RandomSampler(20), options());
  EXPECT_THROW(loader.load_state({0, 10}), InvalidArgument);
  EXPECT_THROW(loader.load_state({0, -1}), InvalidArgument);
}

TEST_P(DataLoaderTest, LetsTheConsumerMoveBatchesOut) {
  DataLoader loader(Echo{}, SequentialSampler(20), options());
  std::vector<Indices> kept;
  for (auto& batch : loader) kept.push_back(std::move(batch));
  EXPECT_EQ(kept.size(), 10u);
  EXPECT_EQ(kept[9], (Indices{18, 19}));
}

TEST_P(DataLoaderTest, EndsALoopWhenAStateIsLoaded) {
  DataLoader loader(Echo{}, SequentialSampler(20), options());
  int batches = 0;
  for ([[maybe_unused]] auto& batch : loader)
    if (++batches == 2) loader.load_state({0, 7});
  EXPECT_EQ(batches, 2);
  EXPECT_EQ((*loader.begin())[0], 14);
}

INSTANTIATE_TEST_SUITE_P(Workers, DataLoaderTest, ::testing::Values(0, 1, 4));

TEST(DataLoader, PreparesNoMoreThanThePrefetchDepthAhead) {
  const Echo dataset{.count = 100};
  DataLoader loader(dataset, SequentialSampler(100), {.num_workers = 2, .prefetch = 3});
  // Waits until the workers have come so far, and then whether they go on.
  const auto expect_fetches = [&](int count) {
    while (dataset.fetches->load() < count) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(dataset.fetches->load(), count);
  };
  auto it = loader.begin();
  expect_fetches(4);  // the one handed out and three ahead
  ++it;
  expect_fetches(5);
}

TEST(DataLoader, WaitingUsesNoProcessorTime) {
  DataLoader loader(Echo{.count = 4, .delay = std::chrono::milliseconds(100)}, SequentialSampler(4),
                    {.num_workers = 3, .prefetch = 2});
  const std::clock_t before = std::clock();
  const auto start = std::chrono::steady_clock::now();
  epoch(loader);
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
  EXPECT_LT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, waited.count() / 4);
}

TEST(DataLoader, RefusesImpossibleOptions) {
  const SequentialSampler sampler(20);
  EXPECT_THROW(DataLoader(Echo{}, sampler, {.num_workers = -1}), InvalidArgument);
  EXPECT_THROW(DataLoader(Echo{}, sampler, {.prefetch = 0}), InvalidArgument);
  EXPECT_THROW(DataLoader(Echo{}, sampler, {.batch_size = 0}), InvalidArgument);
}

TEST(DataLoader, RefusesToShareTheSamplesTwice) {
  const auto make = [](int sampler_ranks, int loader_ranks) {
    DataLoader loader(Echo{}, DistributedSampler(20, {.world_size = sampler_ranks}),
                      {.batch_size = 4, .world_size = loader_ranks});
    return loader.size();
  };
  EXPECT_EQ(make(2, 1), 3);
  EXPECT_EQ(make(1, 2), 5);
  EXPECT_THROW(make(2, 2), InvalidArgument);
}

TEST(DataLoader, RefusesASamplerThatGivesAnotherNumberOfIndices) {
  struct Short : SequentialSampler {
    using SequentialSampler::SequentialSampler;
    Indices order(std::uint64_t) const override { return {0, 1, 2}; }
  };
  DataLoader loader(Echo{}, Short(20), {.batch_size = 4});
  EXPECT_THROW(loader.begin(), InvalidArgument);
}

TEST(PrefetchPipeline, RefusesToGivePastTheEnd) {
  PrefetchPipeline pipeline(1, 1, [](std::int64_t, std::size_t) {});
  pipeline.start(5, 7);
  EXPECT_EQ(pipeline.take(), 0u);
  pipeline.take();
  EXPECT_THROW(pipeline.take(), InvalidArgument);
}

}  // namespace
}  // namespace lockstep::data
