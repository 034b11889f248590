#include "checkpoint/manifest.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/core/error.hpp"

namespace lockstep::checkpoint {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Manifest sample_manifest() {
  return {.step = 1200,
          .world_size = 4,
          .generation = 3,
          .save = 17,
          .version = "0.1.0",
          .metric = 0.1,
          .files = {{.name = "model-00001-of-00001.safetensors",
                     .size = block_bytes + 5,
                     .checksums = {0xDEADBEEF, 7}},
                    {.name = "state.json", .size = 0, .checksums = {}}}};
}

TEST(Manifest, ComesBackAsItWasWritten) {
  const Manifest manifest = parse_manifest(write_manifest(sample_manifest()), "manifest.json");
  EXPECT_EQ(manifest.step, 1200);
  EXPECT_EQ(manifest.world_size, 4);
  EXPECT_EQ(manifest.generation, 3u);
  EXPECT_EQ(manifest.save, 17u);
  ASSERT_EQ(manifest.files.size(), 2u);
  EXPECT_EQ(manifest.files[0].checksums, (std::vector<std::uint32_t>{0xDEADBEEF, 7}));
  EXPECT_EQ(write_manifest(manifest), write_manifest(sample_manifest()));
}

TEST(Manifest, IsRefusedWithAnyBitFlippedAndAtAnyLength) {
  const std::string text = write_manifest(sample_manifest());
  for (std::size_t bit = 0; bit < text.size() * 8; ++bit) {
    std::string flipped = text;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ 1 << bit % 8);
    EXPECT_THROW(parse_manifest(flipped, "manifest.json"), Error) << "bit " << bit;
  }
  for (std::size_t size = 0; size < text.size(); ++size)
    EXPECT_THROW(parse_manifest(text.substr(0, size), "manifest.json"), CorruptData);
}

TEST(Manifest, NamesNoFileOutsideOfItsFolder) {
  for (const char* name : {"", ".", "..", "../model", "/etc/passwd", "a/b"}) {
    Manifest manifest = sample_manifest();
    manifest.files[0].name = name;
    EXPECT_THAT([&] { parse_manifest(write_manifest(manifest), "manifest.json"); },
                ThrowsMessage<CorruptData>(HasSubstr("no name of a file in a folder")));
  }
}

TEST(Manifest, HasAChecksumForEachBlock) {
  Manifest manifest = sample_manifest();
  manifest.files[0].size += block_bytes;
  EXPECT_THAT([&] { parse_manifest(write_manifest(manifest), "manifest.json"); },
              ThrowsMessage<CorruptData>(HasSubstr("2 checksums, not one for each")));
  manifest = sample_manifest();
  manifest.files[1] = manifest.files[0];
  EXPECT_THAT([&] { parse_manifest(write_manifest(manifest), "manifest.json"); },
              ThrowsMessage<CorruptData>(HasSubstr("names a file twice")));
}

}  // namespace
}  // namespace lockstep::checkpoint
