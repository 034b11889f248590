#include "lockstep/data/data_loader.hpp"

#include <atomic>
#include <chrono>
#include <ctime>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/failure_place.hpp"
#include "lockstep/data/distributed_sampler.hpp"
#include "lockstep/data/token_dataset.hpp"

namespace lockstep::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
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

// Where a loader stands, by epoch and samples.
template <class Loader>
std::pair<std::uint64_t, std::int64_t> place(const Loader& loader) {
  return {loader.state().epoch, loader.state().samples};
}
using Place = std::pair<std::uint64_t, std::int64_t>;

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
  EXPECT_EQ(place(loader), (Place{2, 0}));
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

TEST_P(DataLoaderTest, TriesAFirstBatchAgainThatFailed) {
  struct Once {
    std::shared_ptr<std::atomic<bool>> fails = std::make_shared<std::atomic<bool>>(true);
    std::int64_t size() const { return 6; }
    Indices fetch(std::span<const std::int64_t> indices) const {
      if (indices[0] == 0 && fails->exchange(false)) throw std::runtime_error("once");
      return {indices.begin(), indices.end()};
    }
  };
  DataLoader loader(Once{}, SequentialSampler(6), options());
  EXPECT_THROW(loader.begin(), std::runtime_error);
  EXPECT_EQ(place(loader), (Place{0, 0}));
  EXPECT_THAT(epoch(loader), ::testing::ElementsAre(Indices{0, 1}, Indices{2, 3}, Indices{4, 5}));
  EXPECT_EQ(place(loader), (Place{1, 0}));
}

// Each exception is another object, also where they are alike.
TEST_P(DataLoaderTest, NotesTheSamplesThatAnExceptionIsOf) {
  DataLoader loader(Echo{.fails_at = 9}, SequentialSampler(20), options());
  std::vector<std::string> places;
  for (int i = 0; i < 2; ++i) try {
      epoch(loader);
    } catch (const std::runtime_error&) {
      places.push_back(failure_place());
    }
  EXPECT_THAT(places, ::testing::ElementsAre("samples 8, 9 of epoch 0", "samples 8, 9 of epoch 1"));
  try {
    throw std::runtime_error("of nobody");
  } catch (const std::runtime_error&) {
    EXPECT_EQ(failure_place(), "");
  }
  DataLoader large(Echo{.count = 100, .fails_at = 99}, SequentialSampler(100), options(40));
  try {
    epoch(large);
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error&) {
    EXPECT_THAT(failure_place(), AllOf(HasSubstr("samples 80, 81, "), HasSubstr(" of epoch 0")));
  }
  struct Gone {
    std::int64_t size() const { return 20; }
    Indices fetch(std::span<const std::int64_t>) const { throw std::runtime_error("gone"); }
  };
  DataLoader gone(Gone{}, SequentialSampler(20), options());
  try {
    gone.begin();
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error&) {  // workers have met others meanwhile
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(failure_place(), "samples 0, 1 of epoch 0");
  }
  DataLoader first(Echo{.count = 100, .fails_at = 0}, SequentialSampler(100), options(40));
  try {
    epoch(first);
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error&) {
    EXPECT_THAT(failure_place(), HasSubstr(", 31 and 8 more of epoch 0"));
  }
}

// A future throws one exception again and again: told is where it was thrown last.
TEST_P(DataLoaderTest, NotesTheLastSamplesOfAnExceptionThatIsThrownAgain) {
  struct Shared {
    std::exception_ptr error = std::make_exception_ptr(std::runtime_error("no index"));
    std::int64_t size() const { return 20; }
    Indices fetch(std::span<const std::int64_t>) const { std::rethrow_exception(error); }
  };
  DataLoader loader(Shared(), SequentialSampler(20), options());
  for (std::uint64_t epoch = 0; epoch < 6; ++epoch) try {
      loader.load_state({.epoch = epoch});
      loader.begin();
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error&) {
      EXPECT_EQ(failure_place(), "samples 0, 1 of epoch " + std::to_string(epoch));
    }
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
    EXPECT_EQ(place(loader), (Place{0, sample / 2 * 2}));
    EXPECT_FALSE(batch == loader.end());
    EXPECT_THROW(*batch, InvalidArgument);
    ++batch;  // leaves it out
    EXPECT_EQ(batch == loader.end(), sample == 19);
    EXPECT_EQ(place(loader), sample == 19 ? Place(1, 0) : Place(0, 12));
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

TEST_P(DataLoaderTest, RefusesALoopInsideALoopOverTheSameLoader) {
  DataLoader loader(Echo{}, SequentialSampler(20), options());
  int batches = 0;
  for (auto& batch : loader) {
    const Indices kept = batch;
    try {
      epoch(loader);
      ADD_FAILURE() << "it began";
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string_view(error.what()).find("a loop over a DataLoader inside a loop"),
                std::string_view::npos);
    }
    EXPECT_EQ(batch, kept);
    ++batches;
  }
  EXPECT_EQ(batches, 10);
  auto batch = loader.begin();
  loader.stop();
  batch = loader.begin();
  while (batch != loader.end()) ++batch;
  batch = loader.begin();
  EXPECT_EQ(place(loader), (Place{3, 2}));
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
  EXPECT_EQ(place(loader), (Place{1, 2}));
}

std::string refusal(const std::function<void()>& load) {
  try {
    load();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing was thrown";
}

/// Of a text with other letters in a place.
std::uint64_t signature_with(std::size_t size, std::size_t begin, std::size_t count) {
  std::string text(size, 'a');
  for (std::size_t i = begin; i < begin + count; ++i) text[i] = '#';
  return TokenDataset::from_text(std::move(text), {.context = 16}).signature();
}

TEST(DataSignature, FollowsFromEveryByteOfUpTo64MiB) {
  const std::uint64_t whole = signature_with(100'000, 0, 0);
  EXPECT_EQ(signature_with(100'000, 0, 0), whole);
  EXPECT_NE(signature_with(100'000, 3000, 3000), whole);
  for (const std::size_t at : {std::size_t{0}, std::size_t{50'001}, std::size_t{99'999}})
    EXPECT_NE(signature_with(100'000, at, 1), whole) << at;
}

TEST(DataSignature, OfMoreFindsAThousandthThatIsOther) {
  const std::size_t size = (std::size_t{64} << 20) + 77, part = size / 1000;
  const std::uint64_t whole = signature_with(size, 0, 0);
  for (const std::size_t at : {std::size_t{0}, size / 3, size - part})
    EXPECT_NE(signature_with(size, at, part), whole) << at;
  EXPECT_NE(signature_with(size + 1, 0, 0), whole);
}

TEST_P(DataLoaderTest, RefusesAStateOfAnotherDataSetOrderOrSeedWithBothValues) {
  DataLoader loader(Echo{}, RandomSampler(20), options());
  EXPECT_THROW(loader.load_state({0, 21}), InvalidArgument);
  EXPECT_THROW(loader.load_state({0, -1}), InvalidArgument);
  const auto expect_refusal = [&](const auto& other) {
    const std::string message = refusal([&] { loader.load_state(other.state()); });
    EXPECT_THAT(message, HasSubstr(std::to_string(loader.state().signature)));
    EXPECT_THAT(message, HasSubstr(std::to_string(other.state().signature)));
  };
  expect_refusal(DataLoader(Echo{}, RandomSampler(20, 1), options()));
  expect_refusal(DataLoader(Echo{.count = 21}, RandomSampler(20), options()));
  const auto tokens = [](const char* text) {
    return TokenDataset::from_text(text, {.context = 4});
  };
  DataLoader reader(tokens("some text of any kind"), RandomSampler(5), options());
  const DataLoader other(tokens("some text of one kind"), RandomSampler(5), options());
  EXPECT_THAT(refusal([&] { reader.load_state(other.state()); }), HasSubstr("another data set"));

  DataLoaderOptions seeded = options();
  seeded.seed = 4;
  DataLoader drawn(Echo{}, RandomSampler(20), seeded);
  const std::string message = refusal([&] { drawn.load_state({.samples = 2, .seed = 5}); });
  EXPECT_THAT(message, HasSubstr("has seed 5, and the loader 4"));
}

TEST_P(DataLoaderTest, RefusesAStateWhileALoopIsUnderWay) {
  DataLoader loader(Echo{}, SequentialSampler(20), options());
  int batches = 0;
  for ([[maybe_unused]] auto& batch : loader) {
    if (++batches != 2) continue;
    EXPECT_THAT(refusal([&] { loader.load_state({.epoch = 3, .samples = 14}); }),
                AllOf(HasSubstr("epoch 0 after 4 samples"), HasSubstr("epoch 3 and 14")));
  }
  EXPECT_EQ(batches, 10);
}

TEST_P(DataLoaderTest, LoadsAStateAfterALoopWasStopped) {
  DataLoader loader(Echo{}, SequentialSampler(20), options());
  for ([[maybe_unused]] auto& batch : loader) break;
  loader.stop();
  EXPECT_EQ(place(loader), (Place{0, 2}));
  loader.load_state({.samples = 14});
  EXPECT_EQ((*loader.begin())[0], 14);
}

TEST_P(DataLoaderTest, BeginsTheNextEpochAfterALoopWasStopped) {
  DataLoader loader(Echo{}, SequentialSampler(20), options());
  for ([[maybe_unused]] auto& batch : loader)
    if (batch[0] == 6) loader.stop();
  EXPECT_EQ((*loader.begin())[0], 0);
  EXPECT_EQ(place(loader), (Place{1, 2}));
}

TEST_P(DataLoaderTest, BeginsTheNextEpochWhereNothingIsLeftOfTheOneThatWasLoaded) {
  DataLoader loader(Echo{}, SequentialSampler(20), options());
  loader.load_state({.samples = 20});
  EXPECT_EQ(place(loader), (Place{1, 0}));
  EXPECT_EQ((*loader.begin())[0], 0);
}

TEST_P(DataLoaderTest, KeepsTheSeedOfTheFirstEpochAndOfAState) {
  manual_seed(7);
  DataLoader loader(Echo{}, SequentialSampler(20), options());
  EXPECT_FALSE(loader.state().seed);
  epoch(loader);
  EXPECT_EQ(loader.state().seed, 7u);
  manual_seed(8);
  DataLoader other(Echo{}, SequentialSampler(20), options());
  other.load_state(loader.state());
  epoch(other);
  EXPECT_EQ(other.state().seed, 7u);
}

TEST_P(DataLoaderTest, LetsTheConsumerMoveBatchesOut) {
  DataLoader loader(Echo{}, SequentialSampler(20), options());
  std::vector<Indices> kept;
  for (auto& batch : loader) kept.push_back(std::move(batch));
  EXPECT_EQ(kept.size(), 10u);
  EXPECT_EQ(kept[9], (Indices{18, 19}));
}

INSTANTIATE_TEST_SUITE_P(Workers, DataLoaderTest, ::testing::Values(0, 1, 4));

// How ranks read a data set.
struct EchoReading {
  int ranks, workers, prefetch;
  std::int64_t batch;
};

// The samples of all ranks in the order of the epochs, from `state` on, and where they stand after
// `batches`, or after the second epoch.
std::pair<Indices, LoaderState> read_samples(const EchoReading& how, const LoaderState& from,
                                             std::int64_t batches = 1000) {
  Indices all;
  std::vector<std::vector<Indices>> parts;  // of each rank
  LoaderState state;
  for (int rank = 0; rank < how.ranks; ++rank) {
    DataLoader loader(Echo{.count = 101}, RandomSampler(101, 5),
                      {.batch_size = how.batch,
                       .rank = rank,
                       .world_size = how.ranks,
                       .num_workers = how.workers,
                       .prefetch = how.prefetch});
    loader.load_state(from);
    auto& own = parts.emplace_back();
    while (loader.state().epoch < 2 && std::ssize(own) < batches)
      for (auto& batch : loader) {
        own.push_back(batch);
        if (std::ssize(own) == batches) break;
      }
    if (rank == 0) state = loader.state();
    EXPECT_EQ(loader.state(), state);
  }
  for (std::size_t batch = 0; batch < parts.front().size(); ++batch)
    for (const auto& own : parts) all.insert(all.end(), own[batch].begin(), own[batch].end());
  return {all, state};
}

TEST(DataLoader, GoesOnWithTheSameSamplesOnAnyNumbersOfRanksAndWorkersAndInAnyBatches) {
  const auto [whole, end] = read_samples({1, 0, 1, 10}, {});
  ASSERT_EQ(whole.size(), 202u);
  for (const std::int64_t batches : {1, 7, 13, 15}) {
    const auto [begun, state] = read_samples({2, 3, 4, 8}, {}, batches);
    for (const int ranks : {1, 2, 3, 4})
      for (const int workers : {0, 1, 3})
        for (const int prefetch : {1, 8})
          for (const std::int64_t batch : {4, 8, 16}) {
            // What is left of an epoch may make no batch for all ranks, which is refused.
            const std::int64_t last = (101 - state.samples) % batch;
            if ((last > 0 && last < ranks) || (101 % batch > 0 && 101 % batch < ranks)) continue;
            Indices samples = begun;
            const Indices rest = read_samples({ranks, workers, prefetch, batch}, state).first;
            samples.insert(samples.end(), rest.begin(), rest.end());
            EXPECT_EQ(samples, whole) << ranks << " ranks, " << workers << " workers, batches of "
                                      << batch << " after " << state.samples << " samples";
          }
  }
}

TEST(DataLoader, BeginsAndGoesOnAtOnceInAnyEpoch) {
  constexpr std::int64_t count = 1'000'000'000;
  DataLoader loader(Echo{.count = count}, RandomSampler(count, 5), {.batch_size = 1000});
  const auto start = std::chrono::steady_clock::now();
  loader.load_state({.epoch = 3, .samples = count / 3 * 2});
  EXPECT_EQ((*loader.begin()).size(), 1000u);
  // A stored order of a billion samples would take half a minute and 8 GB.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
  static_assert(sizeof(LoaderState) <= 64);
}

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

TEST(PrefetchPipeline, RefusesToGivePastTheEnd) {
  PrefetchPipeline pipeline(1, 1, [](std::int64_t, std::size_t) {});
  pipeline.start(5, 7);
  EXPECT_EQ(pipeline.take(), 0u);
  pipeline.take();
  EXPECT_THROW(pipeline.take(), InvalidArgument);
}

}  // namespace
}  // namespace lockstep::data
