#include "lockstep/io/idx.hpp"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fuzz.hpp"
#include "idx_bytes.hpp"
#include "lockstep/core/error.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::io {
namespace {

using lockstep::testing::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Tensor parse_idx_file(const std::string& file) {
  return parse_idx(std::as_bytes(std::span(file)), "test.idx");
}

std::string idx_corruption(const std::string& file) {
  try {
    parse_idx_file(file);
    return "";
  } catch (const CorruptData& error) {
    return error.what();
  }
}

const std::string digits = idx_bytes(8, {2, 3}, "\1\2\3\4\5\6");

TEST(Idx, ReadsPlainAndCompressedFilesAlike) {
  for (const auto& file : {digits, gzip(digits)}) {
    const Tensor tensor = parse_idx_file(file);
    EXPECT_EQ(tensor.shape(), (Shape{2, 3}));
    EXPECT_THAT(tensor.flat<std::uint8_t>(), ElementsAre(1, 2, 3, 4, 5, 6));
  }
}

TEST(Idx, ReadsWiderTypesWithTheHighestByteFirst) {
  EXPECT_THAT(parse_idx_file(idx_bytes(12, {2}, std::string("\0\0\1\2\xFF\xFF\xFF\xFE", 8)))
                  .flat<std::int32_t>(),
              ElementsAre(258, -2));
  EXPECT_THAT(parse_idx_file(idx_bytes(13, {1}, std::string("\x3F\xC0\0\0", 4))).flat<float>(),
              ElementsAre(1.5f));
  EXPECT_THAT(
      parse_idx_file(idx_bytes(14, {1}, std::string("\xBF\xF8\0\0\0\0\0\0", 8))).flat<double>(),
      ElementsAre(-1.5));
}

TEST(Idx, ReadsSeveralCompressedMembersAsOneFileAndPassesZerosBehindThem) {
  const std::string file =
      gzip(digits.substr(0, 7)) + gzip("") + std::string(3, '\0') + gzip(digits.substr(7));
  for (const std::string& padding : {std::string(), std::string(512, '\0')})
    EXPECT_THAT(parse_idx_file(file + padding).flat<std::uint8_t>(), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(idx_corruption(file.substr(0, file.size() - 3)), HasSubstr("truncated"));
}

TEST(Idx, RejectsTruncationAtEveryOffset) {
  for (const auto& file : {digits, gzip(digits)})
    for (std::size_t length = 0; length < file.size(); ++length)
      EXPECT_NE(idx_corruption(file.substr(0, length)), "") << length;
}

TEST(Idx, RejectsTrailingBytes) {
  EXPECT_THAT(idx_corruption(digits + "x"), HasSubstr("1 trailing bytes at offset 18"));
  EXPECT_THAT(idx_corruption(gzip(digits) + "x"), HasSubstr("trailing"));
  EXPECT_THAT(idx_corruption(gzip(digits + "x")), HasSubstr("trailing"));
}

TEST(Idx, RejectsCompressedDataThatFailTheirChecksum) {
  std::string file = gzip(digits);
  file[file.size() - 6] ^= 1;
  EXPECT_THAT(idx_corruption(file), HasSubstr("damaged"));
}

TEST(Idx, RejectsPromisesThatTheFileCannotKeep) {
  const std::int64_t most = 0xFFFFFFFF;
  EXPECT_THAT(idx_corruption(idx_bytes(8, {most}, std::string(4000, 'x'))),
              HasSubstr("more bytes"));
  EXPECT_THAT(idx_corruption(gzip(idx_bytes(8, {most}, "x"))), HasSubstr("more bytes"));
  EXPECT_THAT(idx_corruption(idx_bytes(14, {most, most, most}, "x")), HasSubstr("more bytes"));
  EXPECT_THAT(idx_corruption(idx_bytes(14, {most, most, 0}, "x")), HasSubstr("more bytes"));
  EXPECT_THAT(idx_corruption(idx_bytes(8, {0, most, most, most}, "")), HasSubstr("more bytes"));
}

TEST(Idx, RejectsHeadersOfOtherFormats) {
  EXPECT_THAT(idx_corruption("PNG and so on"), HasSubstr("not an IDX file"));
  EXPECT_THAT(idx_corruption(idx_bytes(7, {1}, "x")), HasSubstr("element type 7"));
  EXPECT_THROW(parse_idx_file(idx_bytes(9, {1}, "x")), Unsupported);
  EXPECT_THROW(parse_idx_file(idx_bytes(8, {1, 1, 1, 1, 1, 1, 1, 1, 1}, "x")), Unsupported);
}

TEST(LabelledImages, BelongTogether) {
  const TemporaryFolder folder;
  const auto images = folder.write("images", idx_bytes(8, {2, 1, 2}, "abcd"));
  const auto pair = read_labelled_images(images, folder.write("labels", idx_bytes(8, {2}, "\7\3")));
  EXPECT_EQ(pair.images.shape(), (Shape{2, 1, 2}));
  EXPECT_THAT(pair.labels.flat<std::int64_t>(), ElementsAre(7, 3));
}

TEST(LabelledImages, NameCountsAndLabelsThatDoNotFit) {
  const TemporaryFolder folder;
  const auto images = folder.write("images", idx_bytes(8, {2, 1, 2}, "abcd"));
  const auto labels = [&](std::int64_t count, std::string_view values) {
    return folder.write("labels", idx_bytes(8, {count}, values));
  };
  EXPECT_THAT(
      [&] { read_labelled_images(images, labels(3, "\1\1\1")); },
      ThrowsMessage<CorruptData>(AllOf(HasSubstr("has 2 images"), HasSubstr("has 3 labels"))));
  EXPECT_THAT([&] { read_labelled_images(images, labels(2, "\1\12")); },
              ThrowsMessage<CorruptData>(HasSubstr("label 1 is 10; 0 to 9")));
  EXPECT_THROW(read_labelled_images(labels(2, "\1\1"), images), CorruptData);
  EXPECT_THAT(
      [&] {
        read_labelled_images(folder.write("none", idx_bytes(8, {0, 1, 2}, "")), labels(0, ""));
      },
      ThrowsMessage<CorruptData>(HasSubstr("data set is empty")));
}

// Files that are nearly right.
std::string nearly_idx(std::mt19937_64& random) {
  const auto pick = [&](int count) {
    return static_cast<int>(random() % static_cast<unsigned>(count));
  };
  constexpr int codes[] = {8, 8, 8, 12, 13, 14, 9, 11, 3};
  constexpr int widths[] = {1, 1, 1, 4, 4, 8, 1, 2, 1};
  const int code = pick(pick(8) ? 6 : 9);
  std::vector<std::int64_t> shape;
  std::size_t bytes = static_cast<std::size_t>(widths[code]);
  for (int i = pick(4); i > 0; --i) {
    shape.push_back(pick(6));
    bytes *= static_cast<std::size_t>(shape.back());
  }
  if (pick(16) == 0) shape.push_back(static_cast<std::int64_t>(random() & 0xFFFFFFFF));
  std::string file = idx_bytes(codes[code], shape, std::string(bytes, '\1'));
  if (pick(8) == 0)
    file[static_cast<std::size_t>(pick(static_cast<int>(file.size())))] ^= 1 << pick(8);
  if (pick(8) == 0) file = gzip(file);
  if (pick(8) == 0)
    file[static_cast<std::size_t>(pick(static_cast<int>(file.size())))] ^= 1 << pick(8);
  if (pick(8) == 0) file.resize(static_cast<std::size_t>(pick(static_cast<int>(file.size()) + 4)));
  return file;
}

void fuzz_idx(std::uint64_t seed, int inputs) {
  std::mt19937_64 random(seed);
  expect_accepted_or_named(
      inputs, [&] { return nearly_idx(random); },
      [](const std::string& file) { parse_idx_file(file); });
}

TEST(IdxFuzz, EveryInputIsAcceptedOrNamedCorrupt) { fuzz_idx(1, 20'000); }
TEST(IdxFuzz, SlowMillionInputs) { fuzz_idx(2, 1'000'000); }

}  // namespace
}  // namespace lockstep::io
