#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/core/error.hpp"
#include "lockstep/data/data_loader.hpp"
#include "lockstep/data/image_dataset.hpp"
#include "lockstep/data/tensor_dataset.hpp"
#include "lockstep/data/token_dataset.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/golden.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::data {
namespace {

using lockstep::testing::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Indices = std::vector<std::int64_t>;

Tensor floats(std::initializer_list<float> values, const Shape& shape) {
  return from_span<float>({values.begin(), values.size()}, shape);
}

TEST(TensorDataset, GathersTheSameRowsOfEachTensor) {
  const TensorDataset dataset(
      {floats({0, 1, 10, 11, 20, 21}, {3, 2}), tensor<std::int64_t>({5, 6, 7})});
  EXPECT_EQ(dataset.size(), 3);
  const TensorBatch batch = dataset.fetch(Indices{2, 0});
  EXPECT_EQ(batch[0].shape(), (Shape{2, 2}));
  EXPECT_THAT(batch[0].flat<float>(), ElementsAre(20, 21, 0, 1));
  EXPECT_THAT(batch[1].flat<std::int64_t>(), ElementsAre(7, 5));
  EXPECT_THAT([&] { batch[2]; },
              ThrowsMessage<InvalidArgument>(HasSubstr("batch[2]: the data set has 2 tensors")));
}

TEST(TensorDataset, NamesTensorsThatMakeNoDataSet) {
  const Tensor three = floats({1, 2, 3}, {3});
  EXPECT_THROW(TensorDataset({}), InvalidArgument);
  EXPECT_THAT(
      [&] {
        TensorDataset({three, floats({1, 2}, {2})});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("3 and of 2 samples")));
  EXPECT_THAT(
      [&] {
        TensorDataset({empty({0, 2})});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("empty")));
  EXPECT_THROW(TensorDataset({floats({1}, {})}), InvalidArgument);
  EXPECT_THROW(TensorDataset({three}).fetch(Indices{3}), InvalidArgument);
  EXPECT_THROW(TensorDataset({three}).fetch(Indices{-1}), InvalidArgument);
}

TEST(TokenDataset, PairsEverySequenceWithItsTargets) {
  const auto text = TokenDataset::from_text("abcdefgh", {.context = 3});
  EXPECT_EQ(text.token_count(), 8);
  ASSERT_EQ(text.size(), 2);
  const TokenBatch batch = text.fetch(Indices{1, 0});
  EXPECT_EQ(batch.tokens.shape(), (Shape{2, 3}));
  EXPECT_THAT(batch.tokens.flat<std::int64_t>(), ElementsAre('d', 'e', 'f', 'a', 'b', 'c'));
  EXPECT_THAT(batch.targets.flat<std::int64_t>(), ElementsAre('e', 'f', 'g', 'b', 'c', 'd'));
  EXPECT_THROW(text.fetch(Indices{2}), InvalidArgument);
}

TEST(TokenDataset, OverlapsSequencesByItsStride) {
  const auto text = TokenDataset::from_text("abcdefgh", {.context = 3, .stride = 1});
  ASSERT_EQ(text.size(), 5);
  EXPECT_THAT(text.fetch(Indices{4}).targets.flat<std::int64_t>(), ElementsAre('f', 'g', 'h'));
}

TEST(TokenDataset, JoinsTextFilesInTheirOrder) {
  const TemporaryFolder folder;
  const std::array files{folder.write("1", "ab\xFF"), folder.write("2", ""),
                         folder.write("3", "cd")};
  const auto joined = TokenDataset::from_text_files(files, {.context = 4});
  EXPECT_THAT(joined.fetch(Indices{0}).tokens.flat<std::int64_t>(),
              ElementsAre('a', 'b', 255, 'c'));
  const auto mapped = TokenDataset::from_text_files(std::span(files).first(1), {.context = 2});
  EXPECT_THAT(mapped.fetch(Indices{0}).targets.flat<std::int64_t>(), ElementsAre('b', 255));
}

TEST(TokenDataset, Reads16BitTokens) {
  const TemporaryFolder folder;
  const auto path = folder.write("tokens", std::string_view("\1\0\0\1\xFF\xFF", 6));
  const auto tokens = TokenDataset::from_token_file(path, {.context = 2});
  EXPECT_THAT(tokens.fetch(Indices{0}).tokens.flat<std::int64_t>(), ElementsAre(1, 256));
  EXPECT_THAT(tokens.fetch(Indices{0}).targets.flat<std::int64_t>(), ElementsAre(256, 65535));
  EXPECT_THROW(TokenDataset::from_token_file(folder.write("odd", "abc")), CorruptData);
}

TEST(TokenDataset, Reads32BitTokens) {
  const TemporaryFolder folder;
  const std::vector<std::uint32_t> written{128255, 7, 70000, 128000};
  const auto path =
      folder.write("tokens", std::string_view(reinterpret_cast<const char*>(written.data()), 16));
  const auto tokens =
      TokenDataset::from_token_file(path, {.context = 3, .vocabulary = 128256, .token_bytes = 4});
  EXPECT_THAT(tokens.fetch(Indices{0}).tokens.flat<std::int64_t>(), ElementsAre(128255, 7, 70000));
  EXPECT_THAT(tokens.fetch(Indices{0}).targets.flat<std::int64_t>(), ElementsAre(7, 70000, 128000));
  // As 16-bit tokens they would be others.
  EXPECT_THROW(TokenDataset::from_token_file(path, {.context = 3, .vocabulary = 65537}),
               InvalidArgument);
  EXPECT_THROW(TokenDataset::from_token_file(path, {.context = 3, .token_bytes = 8}),
               InvalidArgument);
  EXPECT_THROW(TokenDataset::from_token_file(folder.write("odd", "abcdef"), {.token_bytes = 4}),
               CorruptData);
}

TEST(TokenDataset, SplitsOffHeldOutText) {
  const auto [training, held_out] =
      TokenDataset::from_text("abcdefghij", {.context = 2}).split(0.6);
  EXPECT_EQ(training.token_count(), 6);
  EXPECT_EQ(held_out.token_count(), 4);
  EXPECT_THAT(held_out.fetch(Indices{0}).tokens.flat<std::int64_t>(), ElementsAre('g', 'h'));
  EXPECT_THROW(training.split(0.1), InvalidArgument);
  EXPECT_THROW(training.split(1.0), InvalidArgument);
}

TEST(TokenDataset, NamesTextThatIsTooShortAndTokensPastTheVocabulary) {
  EXPECT_THAT([] { TokenDataset::from_text("abc", {.context = 3}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("at least 4")));
  EXPECT_THROW(TokenDataset::from_text("", {.context = 1}), InvalidArgument);
  EXPECT_THROW(TokenDataset::from_text("abc", {.context = 0}), InvalidArgument);
  const auto held_out =
      TokenDataset::from_text("aaaaaz", {.context = 2, .vocabulary = 'b'}).split(0.5).second;
  EXPECT_THAT([&] { held_out.fetch(Indices{0}); },
              ThrowsMessage<CorruptData>(HasSubstr("token 5 is 122")));
}

TEST(ImageDataset, NormalisesPixels) {
  const Tensor pixels =
      from_span<std::uint8_t>(std::array<std::uint8_t, 4>{0, 255, 51, 102}, {2, 1, 2});
  const ImageDataset dataset({pixels, tensor<std::int64_t>({3, 9})},
                             {.mean = 0.5f, .deviation = 0.5f});
  const ImageBatch batch = dataset.fetch(Indices{1, 0});
  EXPECT_EQ(batch.images.shape(), (Shape{2, 1, 1, 2}));
  EXPECT_THAT(batch.images.flat<float>(),
              ::testing::Pointwise(::testing::FloatNear(1e-6f), {-0.6f, -0.2f, -1.0f, 1.0f}));
  EXPECT_THAT(batch.labels.flat<std::int64_t>(), ElementsAre(9, 3));
  EXPECT_THAT(dataset.range(1, 2).fetch(Indices{0}).labels.flat<std::int64_t>(), ElementsAre(9));
  EXPECT_THROW(dataset.range(1, 3), InvalidArgument);
  EXPECT_THROW(dataset.fetch(Indices{2}), InvalidArgument);
}

TEST(DataLoader, GivesTheSameBatchesOfTensorsFromAnyNumberOfWorkers) {
  const auto text = TokenDataset::from_text(std::string(5000, 'x') + std::string(5000, 'y'),
                                            {.context = 16, .stride = 7});
  const auto sums = [&](int workers) {
    DataLoader loader(text, RandomSampler(text.size(), 3),
                      {.batch_size = 8, .num_workers = workers});
    std::vector<std::int64_t> all;
    for (const auto& batch : loader)
      for (const auto token : batch.tokens.flat<std::int64_t>()) all.push_back(token);
    return all;
  };
  EXPECT_EQ(sums(0), sums(3));
}

TEST(ImageDataset, ReadsMnist) {
  const auto folder = lockstep::testing::data_dir() / "mnist";
  if (!exists(folder)) GTEST_SKIP() << "no MNIST in " << folder << "; set LOCKSTEP_DATA_DIR";
  const ImageDataset digits(io::read_labelled_images(folder / "t10k-images-idx3-ubyte.gz",
                                                     folder / "t10k-labels-idx1-ubyte.gz"));
  EXPECT_EQ(digits.size(), 10'000);
  EXPECT_THAT(digits.fetch(Indices{0, 1, 2}).labels.flat<std::int64_t>(), ElementsAre(7, 2, 1));
}

}  // namespace
}  // namespace lockstep::data
