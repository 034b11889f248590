#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/data/any_dataset.hpp"
#include "lockstep/data/concat_dataset.hpp"
#include "lockstep/data/data_loader.hpp"
#include "lockstep/data/mixture_sampler.hpp"
#include "lockstep/data/tensor_dataset.hpp"
#include "lockstep/tensor/factories.hpp"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Indices = std::vector<std::int64_t>;

std::int64_t sum(const Indices& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), std::int64_t{0});
}

// A run's samples from `first` on.
Indices samples(const MixtureSampler& sampler, std::int64_t first, std::int64_t count) {
  Indices out(static_cast<std::size_t>(count));
  sampler.indices(0, first, out);
  return out;
}

// The source of each sample, of sources of equal sizes.
std::size_t source_of(std::int64_t index, std::size_t sources, std::int64_t size) {
  return static_cast<std::size_t>(index / size) % sources;
}

TEST(MixtureSampler, GivesEverySourceItsShareOfEveryPrefixUpToOneSample) {
  const std::vector<Indices> cases{{1},
                                   {1, 1},
                                   {70, 20, 10},
                                   {7, 0, 3},
                                   {1, 1, 1, 1, 1, 1, 1},
                                   {999, 1},
                                   {5, 4, 3},
                                   {500, 3, 3, 3, 1},
                                   {1, 10, 100, 1000},
                                   {97, 89, 83, 79, 73, 71, 67},
                                   {1, 1, 1, 500, 500, 500}};
  for (const Indices& weights : cases) {
    const Indices sizes(weights.size(), 50);
    const MixtureSampler sampler(sizes, {.weights = weights});
    const std::int64_t whole = sum(weights);
    Indices counts(weights.size());
    for (const std::int64_t index : samples(sampler, 0, 2 * whole + 13)) {
      ++counts[source_of(index, weights.size(), 50)];
      const std::int64_t seen = sum(counts);
      for (std::size_t i = 0; i < weights.size(); ++i) {
        // Less than one sample away from weight / whole of them.
        ASSERT_LT(std::abs(counts[i] * whole - weights[i] * seen), whole)
            << "source " << i << " after " << seen;
        ASSERT_EQ(sampler.count(i, seen), counts[i]);
      }
    }
  }
}

TEST(MixtureSampler, WalksEachSourcePassByPass) {
  const MixtureSampler sampler({5, 12}, {.weights = {2, 1}, .seed = 4});
  Indices first, second;
  for (const std::int64_t index : samples(sampler, 0, 90))
    (index % 17 < 5 ? first : second).push_back(index);
  ASSERT_EQ(first.size(), 60u);
  for (std::int64_t pass = 0; pass < 12; ++pass) {
    Indices own(first.begin() + pass * 5, first.begin() + pass * 5 + 5);
    Indices expected = RandomSampler(5, 4).order(static_cast<std::uint64_t>(pass));
    for (auto& each : expected) each += pass * 17;
    EXPECT_EQ(own, expected);
  }
  const Indices order = RandomSampler(12, 5).order(1);
  for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(second[12 + i], 17 + 5 + order[i]);
}

TEST(MixtureSampler, GoesOnWhereTheEpochBeforeEnded) {
  const MixtureSampler one({5, 12}, {.weights = {2, 1}, .epoch_size = 100});
  const MixtureSampler cut({5, 12}, {.weights = {2, 1}, .epoch_size = 20});
  Indices joined;
  for (std::uint64_t epoch = 0; epoch < 5; ++epoch)
    for (const std::int64_t index : cut.order(epoch)) joined.push_back(index);
  EXPECT_EQ(joined, one.order(0));
  EXPECT_EQ(MixtureSampler({5, 12}, {.weights = {2, 1}}).size(), 17);
}

TEST(MixtureSampler, ChangesWeightsAtASampleAndCountsOn) {
  const Indices sizes{50, 50, 50}, before{6, 3, 1}, after{0, 1, 4};
  const MixtureSampler sampler(sizes,
                               {.weights = before, .changes = {{.first = 1003, .weights = after}}});
  const MixtureSampler unchanged(sizes, {.weights = before});
  EXPECT_EQ(samples(sampler, 0, 1003), samples(unchanged, 0, 1003));
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(sampler.count(i, 1003), unchanged.count(i, 1003));
    for (std::int64_t more = 0; more < 40; ++more) {
      const std::int64_t count = sampler.count(i, 1003 + more) - sampler.count(i, 1003);
      EXPECT_LT(std::abs(count * 5 - after[i] * more), 5);
    }
  }
  // No sample is left out or drawn twice at the change: the last source goes on in its pass.
  Indices last;
  for (const std::int64_t index : samples(sampler, 0, 1500))
    if (source_of(index, 3, 50) == 2) last.push_back(index % 50);
  for (std::size_t pass = 0; pass + 50 <= last.size(); pass += 50) {
    Indices own(last.begin() + static_cast<std::ptrdiff_t>(pass),
                last.begin() + static_cast<std::ptrdiff_t>(pass + 50));
    std::ranges::sort(own);
    EXPECT_EQ(std::ranges::unique(own).begin(), own.end());
  }
}

TEST(MixtureSampler, IsWrittenDown) {
  // So that no later change reorders the data of a resumed run.
  const MixtureSampler sampler({3, 8}, {.weights = {1, 2}, .seed = 1});
  EXPECT_THAT(samples(sampler, 0, 12), ElementsAre(8, 2, 9, 10, 0, 4, 3, 1, 5, 7, 11, 6));
}

TEST(MixtureSampler, NamesWeightsThatMakeNoMixture) {
  const auto refusal = [](Indices sizes, MixtureOptions options, const char* text) {
    EXPECT_THAT([&] { MixtureSampler(sizes, options); },
                ThrowsMessage<InvalidArgument>(HasSubstr(text)));
  };
  refusal({}, {}, "at least one source");
  refusal({5, 0}, {.weights = {1, 1}}, "data set is empty");
  refusal({5, 5}, {.weights = {1}}, "1 weights for 2 sources");
  refusal({5, 5}, {.weights = {2, -1}}, "a weight is -1");
  refusal({5, 5}, {.weights = {0, 0}}, "all weights are 0");
  refusal({5, 5}, {.weights = {200'000, 2}}, "more than 100000");
  refusal({5, 5}, {.weights = {1, 1}, .changes = {{.first = 0, .weights = {1, 2}}}}, "beyond 0");
  refusal({5, 5}, {.weights = {1, 1}, .changes = {{.first = 8, .weights = {1}}}}, "1 weights for");
  refusal({5, 5}, {.weights = {1, 1}, .epoch_size = -1}, "epoch_size is -1");
  MixtureSampler({5, 5}, {.weights = {50'000'000'000, 150'000'000'000}});
  const MixtureSampler sampler({5}, {.weights = {1}});
  EXPECT_THROW(sampler.count(1, 0), InvalidArgument);
  Indices out(1);
  EXPECT_THAT([&] { sampler.indices(std::uint64_t{1} << 63, 0, out); },
              ThrowsMessage<InvalidArgument>(HasSubstr("64 bits")));
}

// Gives its number, the index, and a random number of the sample.
struct Numbered {
  std::int64_t number = 0, count = 10;

  std::int64_t size() const { return count; }
  std::uint64_t signature() const { return static_cast<std::uint64_t>(number) + 1; }
  std::pair<Tensor, Tensor> fetch(std::span<const std::int64_t> indices,
                                  const SampleRandom& random) const {
    const auto rows = std::ssize(indices);
    Tensor names = empty({rows, 2}, {.dtype = DType::i64}), drawn = empty({rows});
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t index = indices[static_cast<std::size_t>(row)];
      Generator generator = random.of(index);
      names.data<std::int64_t>()[2 * row] = number;
      names.data<std::int64_t>()[2 * row + 1] = index;
      drawn.data<float>()[row] = rand({1}, {}, generator).item<float>();
    }
    return {names, drawn};
  }
};

ConcatDataset<Numbered> three_sets() {
  return ConcatDataset(std::vector<Numbered>{{0, 11}, {1, 23}, {2, 5}});
}

TEST(ConcatDataset, JoinsBatchesOfSeveralDataSetsInTheOrderOfTheIndices) {
  const auto sets = three_sets();
  EXPECT_EQ(sets.size(), 39);
  EXPECT_THAT(sets.sizes(), ElementsAre(11, 23, 5));
  const auto [names, drawn] = sets.fetch(Indices{38, 0, 11, 10, 34, 33}, {3, 0});
  EXPECT_THAT(names.flat<std::int64_t>(), ElementsAre(2, 4, 0, 0, 1, 0, 0, 10, 2, 0, 1, 22));
  // Alone as in a batch of others, with numbers of its own in every set and pass.
  EXPECT_EQ(sets.fetch(Indices{11}, {3, 0}).second.item<float>(), drawn.flat<float>()[2]);
  EXPECT_NE(drawn.flat<float>()[1], drawn.flat<float>()[2]);
  const auto later = sets.fetch(Indices{11, 39 + 11}, {3, 0});
  EXPECT_THAT(later.first.flat<std::int64_t>(), ElementsAre(1, 0, 1, 0));
  EXPECT_NE(later.second.flat<float>()[0], later.second.flat<float>()[1]);
  EXPECT_THROW(sets.fetch(Indices{-1}, {}), InvalidArgument);
  EXPECT_THROW(ConcatDataset(std::vector<Numbered>{}), InvalidArgument);
}

// As Numbered, of another type, without a signature and random numbers.
struct Plain {
  std::int64_t count = 0;

  std::int64_t size() const { return count; }
  std::pair<Tensor, Tensor> fetch(std::span<const std::int64_t> indices) const {
    const auto rows = std::ssize(indices);
    Tensor names = full({rows, 2}, -1, {.dtype = DType::i64});
    for (std::int64_t row = 0; row < rows; ++row)
      names.data<std::int64_t>()[2 * row + 1] = indices[static_cast<std::size_t>(row)];
    return {names, zeros({rows})};
  }
};

TEST(AnyDataset, LetsDataSetsOfDifferentTypesBeMixed) {
  using Any = AnyDataset<std::pair<Tensor, Tensor>>;
  static_assert(!std::is_constructible_v<Any, TensorDataset>, "its batches are of another type");
  const ConcatDataset sets(std::vector<Any>{Numbered{0, 11}, Plain{23}});
  EXPECT_THAT(sets.sizes(), ElementsAre(11, 23));
  const auto [names, drawn] = sets.fetch(Indices{33, 4, 11}, {3, 0});
  EXPECT_THAT(names.flat<std::int64_t>(), ElementsAre(-1, 22, 0, 4, -1, 0));
  const ConcatDataset alike(std::vector<Numbered>{{0, 11}, {1, 23}});
  EXPECT_EQ(drawn.flat<float>()[1], alike.fetch(Indices{4}, {3, 0}).second.item<float>());
  EXPECT_EQ(drawn.flat<float>()[0], 0);

  const auto loader_of = [](const auto& all) {
    return DataLoader(all, MixtureSampler(all.sizes(), {.weights = {2, 1}, .seed = 1}),
                      {.batch_size = 5, .num_workers = 2});
  };
  auto loader = loader_of(sets);
  std::vector<int> counts(2);
  for (const auto& batch : loader)
    for (std::int64_t row = 0; row < batch.first.size(0); ++row)
      ++counts[batch.first.data<std::int64_t>()[2 * row] < 0];
  EXPECT_THAT(counts, ElementsAre(23, 11));
}

TEST(AnyDataset, IsKnownByTheDataSetThatItHas) {
  const AnyDataset<std::pair<Tensor, Tensor>> numbered = Numbered{4, 11}, plain = Plain{11};
  EXPECT_EQ(order_signature(numbered, 7), order_signature(Numbered{4, 11}, 7));
  EXPECT_EQ(order_signature(plain, 7), order_signature(Plain{11}, 7));
  EXPECT_NE(order_signature(plain, 7), order_signature(numbered, 7));
}

TEST(ConcatDataset, NamesDataSetsWhoseBatchesCannotBeJoined) {
  const auto fetch = [](const Tensor& first, const Tensor& second) {
    ConcatDataset(std::vector{TensorDataset({first}), TensorDataset({second})})
        .fetch(Indices{0, 1, 2}, {});
  };
  EXPECT_THAT(
      [&] {
        fetch(zeros({2, 3}), zeros({2, 4}));
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("data set 1 gave f32 [1, 4]")));
  EXPECT_THROW(fetch(zeros({2, 3}), zeros({2, 3}, {.dtype = DType::i64})), InvalidArgument);
  fetch(zeros({2, 3}), zeros({5, 3}));
}

// How ranks read a mixture.
struct MixtureReading {
  int ranks, workers, prefetch;
  std::int64_t batch;
};

const MixtureOptions changing{.weights = {5, 2, 3},
                              .changes = {{.first = 57, .weights = {1, 0, 2}}},
                              .epoch_size = 90,
                              .seed = 6};

// What all ranks read, in the order of the run, from a state to the end of the second epoch, and
// where they stand after some batches.
std::pair<std::vector<double>, LoaderState> read_mixture(const MixtureReading& how,
                                                         const LoaderState& from,
                                                         std::int64_t batches = 1000) {
  std::vector<std::vector<std::vector<double>>> parts;  // of each rank, of each batch
  LoaderState state;
  for (int rank = 0; rank < how.ranks; ++rank) {
    const auto sets = three_sets();
    DataLoader loader(sets, MixtureSampler(sets.sizes(), changing),
                      {.batch_size = how.batch,
                       .rank = rank,
                       .world_size = how.ranks,
                       .num_workers = how.workers,
                       .prefetch = how.prefetch,
                       .seed = 2});
    loader.load_state(from);
    auto& own = parts.emplace_back();
    while (loader.state().epoch < 2 && std::ssize(own) < batches)
      for (auto& [names, drawn] : loader) {
        auto& batch = own.emplace_back();
        for (std::int64_t i = 0; i < drawn.numel(); ++i)
          for (const double each : {static_cast<double>(names.data<std::int64_t>()[2 * i]),
                                    static_cast<double>(names.data<std::int64_t>()[2 * i + 1]),
                                    static_cast<double>(drawn.data<float>()[i])})
            batch.push_back(each);
        if (std::ssize(own) == batches) break;
      }
    if (rank == 0) state = loader.state();
    EXPECT_EQ(loader.state(), state);
  }
  std::vector<double> all;
  for (std::size_t batch = 0; batch < parts.front().size(); ++batch)
    for (const auto& own : parts) all.insert(all.end(), own[batch].begin(), own[batch].end());
  return {all, state};
}

TEST(Mixture, GoesOnWithTheSameSamplesOnAnyNumbersOfRanksAndWorkersAndInAnyBatches) {
  const auto whole = read_mixture({1, 0, 1, 10}, {}).first;
  ASSERT_EQ(whole.size(), 180u * 3);
  for (const std::int64_t batches : {1, 7, 11, 13}) {
    const auto [begun, state] = read_mixture({2, 3, 4, 8}, {}, batches);
    for (const int ranks : {1, 2, 3, 4})
      for (const auto& [workers, prefetch] : {std::pair{0, 1}, {1, 8}, {3, 1}, {3, 8}})
        for (const std::int64_t batch : {4, 8, 16}) {
          // What is left of an epoch may make no batch for all ranks, which is refused.
          const std::int64_t last = (90 - state.samples) % batch;
          if ((last > 0 && last < ranks) || (90 % batch > 0 && 90 % batch < ranks)) continue;
          std::vector<double> all = begun;
          const auto rest = read_mixture({ranks, workers, prefetch, batch}, state).first;
          all.insert(all.end(), rest.begin(), rest.end());
          EXPECT_EQ(all, whole) << ranks << " ranks, " << workers << " workers, batches of "
                                << batch << " after " << state.samples << " samples";
        }
  }
}

TEST(Mixture, RefusesAStateOfOtherDataOrWeightsWithBothValues) {
  const auto loader = [](ConcatDataset<Numbered> sets, MixtureOptions options) {
    const Indices sizes = sets.sizes();
    return DataLoader(std::move(sets), MixtureSampler(sizes, std::move(options)),
                      {.batch_size = 10});
  };
  const auto state_after = [&](int batches) {
    auto whole = loader(three_sets(), changing);
    for ([[maybe_unused]] auto& batch : whole)
      if (--batches == 0) break;
    return whole.state();
  };
  const LoaderState early = state_after(5), late = state_after(6);
  const auto refused = [](auto other, const LoaderState& state) {
    EXPECT_THAT([&] { other.load_state(state); },
                ThrowsMessage<InvalidArgument>(
                    ::testing::AllOf(HasSubstr(std::to_string(state.signature)),
                                     HasSubstr("weight of samples before the state"))));
  };
  refused(loader(ConcatDataset(std::vector<Numbered>{{0, 11}, {1, 23}, {3, 5}}), changing), early);
  MixtureOptions other = changing;
  other.weights = {5, 3, 2};
  refused(loader(three_sets(), other), early);
  other = changing;
  other.seed = 7;
  refused(loader(three_sets(), other), early);
  // Weights of samples that are still to come may be changed, until they were used.
  other = changing;
  other.changes = {{.first = 50, .weights = {1, 1, 1}}};
  loader(three_sets(), other).load_state(early);
  refused(loader(three_sets(), other), late);
}

TEST(Mixture, BeginsAndGoesOnAtOnceAtAnySample) {
  constexpr std::int64_t count = 1'000'000'000;
  const ConcatDataset sets(std::vector<Numbered>{{0, count}, {1, count}, {2, 1000}});
  DataLoader loader(sets, MixtureSampler(sets.sizes(), {.weights = {60'001, 39'989, 10}}),
                    {.batch_size = 1000});
  const auto start = std::chrono::steady_clock::now();
  loader.load_state({.epoch = 3, .samples = count / 3 * 2});
  EXPECT_EQ((*loader.begin()).second.numel(), 1000);
  // 50 ms on a machine that does nothing else.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
}

}  // namespace
}  // namespace lockstep::data
