#include "lockstep/data/subset.hpp"

#include <algorithm>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/data/data_loader.hpp"
#include "lockstep/data/tensor_dataset.hpp"
#include "lockstep/tensor/factories.hpp"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Indices = std::vector<std::int64_t>;

TensorDataset numbers(std::int64_t count) { return TensorDataset({arange(count, {DType::i64})}); }

// Or its fetch would read past the end of whatever it keeps them in.
TEST(Dataset, IsNotAskedForSamplesThatItHasNot) {
  struct Squares {
    std::int64_t size() const { return 8; }
    std::vector<std::int64_t> fetch(std::span<const std::int64_t> indices) const {
      for (const auto index : indices) EXPECT_LT(index, 8);
      return {indices.begin(), indices.end()};
    }
  };
  DataLoader loader(Squares{}, SequentialSampler(9), {.batch_size = 3});
  EXPECT_THAT(
      [&] {
        for ([[maybe_unused]] auto& batch : loader) {
        }
      },
      ThrowsMessage<InvalidArgument>(
          HasSubstr("a data set of 8 samples is asked for sample 8; give the sampler")));
  EXPECT_THROW(fetch(Squares{}, Indices{-1}, SampleRandom{}), InvalidArgument);
}

TEST(Subset, HasTheSamplesThatItsIndicesName) {
  const Subset subset(numbers(10), {7, 2, 2, 9});
  EXPECT_EQ(subset.size(), 4);
  DataLoader loader(subset, SequentialSampler(subset.size()), {.batch_size = 3});
  Indices seen;
  for (const auto& batch : loader)
    for (const auto each : batch[0].to_vector<std::int64_t>()) seen.push_back(each);
  EXPECT_THAT(seen, ElementsAre(7, 2, 2, 9));
  EXPECT_THAT(
      [&] {
        Subset(numbers(10), {3, 10});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("sample 10 of a data set of 10")));
  EXPECT_THROW(Subset(numbers(10), {-1}), InvalidArgument);
  EXPECT_THROW(data::fetch(subset, Indices{4}, SampleRandom{}), InvalidArgument);
  EXPECT_THAT(subset.fetch(Indices{3, 0})[0].to_vector<std::int64_t>(), ElementsAre(9, 7));
}

TEST(Subset, DrawsTheRandomNumbersOfTheWhole) {
  struct Noise {
    std::int64_t size() const { return 8; }
    std::vector<double> fetch(std::span<const std::int64_t> indices,
                              const SampleRandom& random) const {
      std::vector<double> all;
      for (const auto i : indices) {
        Generator generator = random.of(i);
        all.push_back(rand({}, {DType::f64}, generator).item());
      }
      return all;
    }
  };
  const SampleRandom random{3, 1};
  EXPECT_EQ(data::fetch(Subset(Noise{}, {5, 1}), Indices{0, 1}, random),
            data::fetch(Noise{}, Indices{5, 1}, random));
}

TEST(Subset, IsToldFromOthers) {
  const auto signature = [](std::int64_t count, Indices indices) {
    return Subset(numbers(count), std::move(indices)).signature();
  };
  EXPECT_EQ(signature(10, {1, 2}), signature(10, {1, 2}));
  EXPECT_NE(signature(10, {1, 2}), signature(10, {2, 1}));
  EXPECT_NE(signature(10, {1, 2}), signature(11, {1, 2}));
}

TEST(RandomSplit, CutsADataSetIntoDisjointParts) {
  const auto parts = random_split(numbers(10), {5, 3, 2}, 4);
  ASSERT_EQ(parts.size(), 3u);
  Indices all;
  for (const auto& part : parts)
    all.insert(all.end(), part.indices().begin(), part.indices().end());
  EXPECT_EQ(parts[1].size(), 3);
  EXPECT_FALSE(std::ranges::is_sorted(all));
  EXPECT_EQ(random_split(numbers(10), Indices{5, 3, 2}, 4)[0].indices(), parts[0].indices());
  EXPECT_NE(random_split(numbers(10), {5, 3, 2}, 5)[0].indices(), parts[0].indices());
  std::ranges::sort(all);
  Indices expected(10);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(all, expected);
}

TEST(RandomSplit, TakesShares) {
  const auto sizes = [](std::int64_t count, std::vector<double> shares) {
    Indices found;
    for (const auto& part : random_split(numbers(count), shares)) found.push_back(part.size());
    return found;
  };
  EXPECT_THAT(sizes(10, {0.9, 0.1}), ElementsAre(9, 1));
  EXPECT_THAT(sizes(11, {0.5, 0.25, 0.25}), ElementsAre(6, 3, 2));
  EXPECT_EQ(random_split(numbers(4), {0.5, 0.5})[1].size(), 2);
  EXPECT_THAT(sizes(10'000'000, {0.5, 0.5000009}), ElementsAre(5'000'000, 5'000'000));
}

TEST(RandomSplit, NamesPartsThatDoNotAddUp) {
  EXPECT_THAT(
      [] {
        random_split(numbers(10), {5, 3});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("leave out 2 of 10")));
  EXPECT_THAT(
      [] {
        random_split(numbers(10), {5, 6});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("a part of 6 samples, where 5 of 10")));
  EXPECT_THAT(
      [] {
        random_split(numbers(10), {11, -1});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("a part of -1 samples")));
  EXPECT_THAT(
      [] {
        random_split(numbers(10), {0.5, 0.4});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("add up to 0.9")));
  EXPECT_THROW(random_split(numbers(10), {1.5, -0.5}), InvalidArgument);
}

}  // namespace
}  // namespace lockstep::data
