#include <algorithm>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/thread_job.hpp"
#include "lockstep/data/distributed_sampler.hpp"
#include "lockstep/observe/log.hpp"
#include "lockstep/train/loop.hpp"
#include "parallel/small_training.hpp"

// Whether ranks, and a run that is resumed, train on the samples that they are to share out.

namespace lockstep::train {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::run_job;
using testing::TemporaryFolder;
using ::testing::ThrowsMessage;

/// Samples with a random number each, by which they are known.
struct NoisySamples {
  std::int64_t size() const { return 12; }
  std::vector<double> fetch(std::span<const std::int64_t> indices,
                            const data::SampleRandom& random) const {
    std::vector<double> drawn;
    for (const std::int64_t index : indices) {
      Generator generator = random.of(index);
      drawn.push_back(static_cast<double>(index) + rand({}, {}, generator).item());
    }
    return drawn;
  }
};

/// All that the ranks draw in two epochs of 6 steps, in order. Ranks are seeded as
/// docs/long-runs.md has it. @param stop the step before which the first start ends; 0: none.
std::vector<double> samples_drawn(int ranks, std::int64_t stop) {
  const TemporaryFolder folder;
  std::vector<double> drawn;
  std::mutex mutex;
  for (const std::int64_t steps : {stop, std::int64_t{12}}) {
    if (steps == 0) continue;
    run_job(ranks, [&](const CommunicatorPtr& group) {
      manual_seed(1 + static_cast<std::uint64_t>(group->rank()));
      data::DataLoader loader(NoisySamples{}, data::RandomSampler(12, 1),
                              {.batch_size = 2, .rank = group->rank(), .world_size = ranks});
      Loop loop(group, {.steps = steps, .checkpoint_dir = folder / "run"});
      loop.run(loader, [&](const std::vector<double>& batch) {
        const std::lock_guard lock(mutex);
        for (const double each : batch) drawn.push_back(each);
        return Tensor();
      });
    });
  }
  std::ranges::sort(drawn);
  return drawn;
}

TEST(TrainLoop, HasDataSetsDrawTheSameOnAnyNumberOfRanksAndResumed) {
  const std::vector<double> whole = samples_drawn(1, 0);
  EXPECT_EQ(whole.size(), 24u);
  for (const int ranks : {1, 2})
    for (const std::int64_t stop : {0, 4, 7})
      EXPECT_EQ(samples_drawn(ranks, stop), whole) << ranks << " ranks, stopped at " << stop;
}

TEST(TrainLoop, RefusesLoadersOfOtherSeeds) {
  run_job(2, [](const CommunicatorPtr& group) {
    const auto rank = static_cast<std::uint64_t>(group->rank());
    data::DataLoader loader(
        NoisySamples{}, data::RandomSampler(12, 1),
        {.batch_size = 2, .rank = group->rank(), .world_size = 2, .seed = 5 + rank});
    Loop loop(group, {.epochs = 1});
    EXPECT_THAT([&] { loop.run(loader, [](auto&) { return Tensor(); }); },
                ThrowsMessage<InvalidArgument>(HasSubstr("seed is 5 on rank 0 but 6 on rank 1")));
  });
}

/// What the loop says where ranks' loaders are made by `make(group)`; empty where it runs.
template <class Make>
std::string refusal_of_loaders(int ranks, const Make& make) {
  std::vector<std::string> said(static_cast<std::size_t>(ranks));
  run_job(ranks, [&](const CommunicatorPtr& group) {
    auto loader = make(*group);
    Loop loop(group, {.steps = 1});
    try {
      loop.run(*loader, [](auto&) { return Tensor(); });
    } catch (const InvalidArgument& error) {
      said[static_cast<std::size_t>(group->rank())] = error.what();
    }
  });
  for (const std::string& each : said) EXPECT_EQ(each, said[0]);
  return said[0];
}

template <class S>
auto loader_of(S sampler, const data::DataLoaderOptions& options) {
  return std::make_unique<data::DataLoader<NoisySamples>>(NoisySamples{}, std::move(sampler),
                                                          options);
}

TEST(TrainLoop, RefusesRanksThatDoNotShareOutTheSameSamples) {
  using data::RandomSampler;
  EXPECT_THAT(refusal_of_loaders(2,
                                 [](comm::Communicator& group) {
                                   const auto seed = static_cast<std::uint64_t>(group.rank());
                                   return loader_of(
                                       RandomSampler(12, seed),
                                       {.batch_size = 4, .rank = group.rank(), .world_size = 2});
                                 }),
              ::testing::AllOf(HasSubstr("the loader's sampler's signature is "),
                               HasSubstr(" on rank 1; give the sampler the same seed")));
  EXPECT_THAT(refusal_of_loaders(2,
                                 [](comm::Communicator& group) {
                                   return loader_of(RandomSampler(12, 1),
                                                    {.batch_size = group.rank() == 0 ? 4 : 3,
                                                     .rank = group.rank(),
                                                     .world_size = 2});
                                 }),
              HasSubstr("batch_size is 4 on rank 0 but 3 on rank 1"));
  EXPECT_THAT(refusal_of_loaders(
                  2,
                  [](comm::Communicator& group) {
                    return loader_of(
                        RandomSampler(12, 1),
                        {.batch_size = 4, .rank = 0, .world_size = group.rank() == 0 ? 2 : 1});
                  }),
              HasSubstr("world_size is 2 on rank 0 but 1 on rank 1"));
  EXPECT_THAT(refusal_of_loaders(2,
                                 [](comm::Communicator&) {
                                   return loader_of(RandomSampler(12, 1),
                                                    {.batch_size = 4, .rank = 0, .world_size = 2});
                                 }),
              HasSubstr("rank 0 of 2 is handed out on 2 ranks, where it should be 1"));
  EXPECT_THAT(refusal_of_loaders(2,
                                 [](comm::Communicator& group) {
                                   return loader_of(
                                       data::DistributedSampler(
                                           12, {.rank = group.rank(), .world_size = 3}),
                                       {.batch_size = 2});
                                 }),
              HasSubstr("world_size is 3 on 2 ranks"));
}

TEST(TrainLoop, TakesSharesOfASamplerAndOfGroupsThatHaveAModelTogether) {
  EXPECT_EQ(refusal_of_loaders(2,
                               [](comm::Communicator& group) {
                                 return loader_of(data::DistributedSampler(
                                                      12, {.rank = group.rank(), .world_size = 2}),
                                                  {.batch_size = 2});
                               }),
            "");
  EXPECT_EQ(refusal_of_loaders(4,
                               [](comm::Communicator& group) {
                                 return loader_of(
                                     data::RandomSampler(12, 1),
                                     {.batch_size = 2, .rank = group.rank() / 2, .world_size = 2});
                               }),
            "");
}

/// A loader of as many samples as a rank has, in an order of its own.
auto loader_of_own(comm::Communicator& group, int world_size) {
  const std::int64_t samples = 8 + 4 * group.rank();
  return std::make_unique<data::DataLoader<data::TensorDataset>>(
      data::TensorDataset({zeros({samples})}), data::RandomSampler(samples, 1),
      data::DataLoaderOptions{
          .batch_size = 2, .rank = world_size > 1 ? group.rank() : 0, .world_size = world_size});
}

TEST(TrainLoop, TakesOwnSamplesOfAnyNumberWhereNoEpochIsCounted) {
  EXPECT_EQ(refusal_of_loaders(2, [](auto& group) { return loader_of_own(group, 1); }), "");
  EXPECT_THAT(refusal_of_loaders(2, [](auto& group) { return loader_of_own(group, 2); }),
              HasSubstr("the loader's data set's size is 8 on rank 0 but 12 on rank 1; give all"));
  run_job(2, [](const CommunicatorPtr& group) {
    const auto loader = loader_of_own(*group, 1);
    const auto refusal = [&](const LoopOptions& options, bool evaluates) {
      Loop loop(group, options);
      if (evaluates) loop.evaluate = [] { return 1.0; };
      EXPECT_THAT(
          [&] { loop.run(*loader, [](auto&) { return Tensor(); }); },
          ThrowsMessage<InvalidArgument>(HasSubstr("batches of an epoch is 4 on rank 0 but 6")));
    };
    refusal({.steps = 9}, true);
    refusal({.epochs = 2}, false);
    Loop loop(group, {.steps = 15});
    EXPECT_EQ(loop.run(*loader, [](auto&) { return Tensor(); }), 0);
    EXPECT_EQ(loop.steps(), 15);
  });
}

TEST(TrainLoop, SaysThatSamplersMayDifferForSamplesOfOnesOwn) {
  EXPECT_THAT(
      refusal_of_loaders(2,
                         [](comm::Communicator& group) {
                           return loader_of(
                               data::RandomSampler(12, static_cast<std::uint64_t>(group.rank())),
                               {.batch_size = 4});
                         }),
      HasSubstr("or data sets that are each rank's own a signature()"));
}

TEST(TrainLoop, WarnsWhereEachRankTrainsOnAllSamplesButNotOnItsOwn) {
  static std::string log;
  set_log_sink([](std::string_view line) { log += line; });
  for (const bool is_own : {false, true}) {
    log.clear();
    const std::string refusal = refusal_of_loaders(2, [&](comm::Communicator& group) {
      const double first = is_own ? group.rank() : 0;
      return std::make_unique<data::DataLoader<data::TensorDataset>>(
          data::TensorDataset({full({4}, first)}), data::SequentialSampler(4),
          data::DataLoaderOptions{.batch_size = 2});
    });
    EXPECT_EQ(refusal, "");
    const std::string words = "each of 2 ranks trains on all samples";
    EXPECT_THAT(log, is_own ? IsEmpty() : ::testing::Matcher<std::string>(HasSubstr(words)));
  }
  set_log_sink(nullptr);
}

}  // namespace
}  // namespace lockstep::train
