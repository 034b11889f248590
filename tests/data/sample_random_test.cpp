#include "lockstep/data/sample_random.hpp"

#include <map>
#include <set>

#include <gtest/gtest.h>

#include "lockstep/data/data_loader.hpp"
#include "lockstep/tensor/factories.hpp"

namespace lockstep::data {
namespace {

// As users write it: whatever `fetch` draws comes from the default generator.
struct Noise {
  std::int64_t size() const { return 8; }
  std::vector<float> fetch(std::span<const std::int64_t> indices) const {
    return rand({static_cast<std::int64_t>(indices.size())}).to_vector<float>();
  }
};

// One number for each sample, from the sample's own generator.
struct SampleNoise {
  std::int64_t size() const { return 8; }
  std::map<std::int64_t, float> fetch(std::span<const std::int64_t> indices,
                                      const SampleRandom& random) const {
    std::map<std::int64_t, float> noise;
    for (const auto index : indices) {
      Generator generator = random.of(index);
      noise[index] = rand({1}, {}, generator).to_vector<float>()[0];
    }
    return noise;
  }
};

std::vector<float> noise_of(std::uint64_t seed, int workers, int epochs = 1) {
  manual_seed(seed);
  DataLoader loader(Noise{}, SequentialSampler(8), {.batch_size = 2, .num_workers = workers});
  std::vector<float> all;
  for (int epoch = 0; epoch < epochs; ++epoch)
    for (const auto& batch : loader) all.insert(all.end(), batch.begin(), batch.end());
  return all;
}

std::set<float> distinct(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

// All samples of an epoch with their noise, as `ranks` ranks see them together.
std::map<std::int64_t, float> sample_noise(int ranks, int workers, std::int64_t batch_size) {
  std::map<std::int64_t, float> all;
  for (int rank = 0; rank < ranks; ++rank) {
    DataLoader loader(SampleNoise{}, RandomSampler(8),
                      {.batch_size = batch_size,
                       .rank = rank,
                       .world_size = ranks,
                       .num_workers = workers,
                       .seed = 7});
    for (const auto& batch : loader) all.insert(batch.begin(), batch.end());
  }
  return all;
}

TEST(SampleRandom, FollowsFromSeedEpochAndSample) {
  const auto place = [](std::uint64_t seed, std::uint64_t epoch, std::int64_t sample) {
    return SampleRandom(seed, epoch).of(sample).state().seed;
  };
  EXPECT_EQ(place(1, 2, 3), place(1, 2, 3));
  std::set<std::uint64_t> all;
  for (std::uint64_t seed = 0; seed < 4; ++seed)
    for (std::uint64_t epoch = 0; epoch < 4; ++epoch)
      for (std::int64_t sample = 0; sample < 64; ++sample) all.insert(place(seed, epoch, sample));
  EXPECT_EQ(all.size(), 4u * 4 * 64);
}

TEST(SampleRandom, OfAnOpIsItsOwnWhateverOthersDraw) {
  const SampleRandom random(1, 2);
  const auto first = [&](std::int64_t sample, const char* op) {
    Generator generator = random.of(sample, op);
    return rand({4}, {}, generator).to_vector<float>();
  };
  const auto flip = first(3, "flip");
  Generator crop = random.of(3, "crop"), plain = random.of(3);
  for (int i = 0; i < 5; ++i) rand({7}, {}, crop);  // one that draws more now
  EXPECT_EQ(first(3, "flip"), flip);
  std::set<std::uint64_t> seeds{plain.state().seed};
  for (std::int64_t sample = 0; sample < 64; ++sample)
    for (const char* op : {"", "flip", "crop", "crop2"})
      seeds.insert(random.of(sample, op).state().seed);
  EXPECT_EQ(seeds.size(), 4u * 64 + 1);
}

// Those of runs before: pixels of a resumed training depend on them.
TEST(SampleRandom, OfASampleStaysWhatItWas) {
  EXPECT_EQ(SampleRandom(7, 3).of(5).state().seed, 7663025550798234597u);
}

TEST(LoaderRandomness, IsTheSameForAnyNumberOfWorkersAndNeverRepeats) {
  const auto alone = noise_of(1, 0, 2);
  EXPECT_EQ(distinct(alone).size(), 16u);
  for (const int workers : {1, 2, 4}) EXPECT_EQ(noise_of(1, workers, 2), alone) << workers;
}

TEST(LoaderRandomness, FollowsTheManualSeed) {
  EXPECT_EQ(noise_of(1, 2), noise_of(1, 2));
  EXPECT_NE(noise_of(1, 2), noise_of(2, 2));
}

TEST(LoaderRandomness, DiffersBetweenRanks) {
  manual_seed(1);
  std::vector<float> all;
  for (int rank = 0; rank < 2; ++rank) {
    DataLoader loader(Noise{}, SequentialSampler(8),
                      {.batch_size = 4, .rank = rank, .world_size = 2, .num_workers = 2});
    for (const auto& batch : loader) all.insert(all.end(), batch.begin(), batch.end());
  }
  EXPECT_EQ(distinct(all).size(), 8u);
}

TEST(LoaderRandomness, LeavesTheCallersGeneratorAlone) {
  for (const int workers : {0, 2}) {
    manual_seed(5);
    const auto expected = rand({4}).to_vector<float>();
    noise_of(5, workers);
    EXPECT_EQ(rand({4}).to_vector<float>(), expected) << workers;
  }
}

TEST(LoaderRandomness, OfASampleIsTheSameInAnyBatchAndOnAnyRank) {
  const auto alone = sample_noise(1, 0, 8);
  EXPECT_EQ(alone.size(), 8u);
  EXPECT_EQ(sample_noise(2, 0, 4), alone);
  EXPECT_EQ(sample_noise(4, 3, 8), alone);
}

TEST(LoaderRandomness, GoesOnWhereARunWasLeft) {
  manual_seed(3);
  DataLoader whole(Noise{}, SequentialSampler(8), {.batch_size = 2});
  std::vector<std::vector<float>> batches;
  for (const auto& batch : whole) batches.push_back(batch);
  DataLoader resumed(Noise{}, SequentialSampler(8), {.batch_size = 2, .num_workers = 2});
  resumed.load_state({.samples = 4});
  EXPECT_EQ(*resumed.begin(), batches[2]);
}

}  // namespace
}  // namespace lockstep::data
