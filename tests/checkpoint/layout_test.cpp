#include "checkpoint/layout.hpp"

#include <algorithm>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.hpp"
#include "lockstep/io/safetensors_header.hpp"

namespace lockstep::checkpoint {
namespace {

std::vector<TensorSpec> sample_tensors() {
  return {{"embedding.weight", DType::f32, {100, 8}},
          {"block.weight", DType::bf16, {8, 8}},
          {"block.bias", DType::f32, {8}},
          {"steps", DType::i64, {}},
          {"empty", DType::f32, {0, 4}},
          {"mask", DType::boolean, {3}}};
}

TEST(Layout, DoesNotDependOnTheOrderInWhichTensorsAreNamed) {
  const Layout expected("model", sample_tensors(), 1 << 20);
  std::mt19937 random(3);
  for (int i = 0; i < 20; ++i) {
    auto tensors = sample_tensors();
    std::ranges::shuffle(tensors, random);
    const Layout layout("model", tensors, 1 << 20);
    ASSERT_EQ(layout.files().size(), 1u);
    EXPECT_EQ(layout.files()[0].header, expected.files()[0].header);
    EXPECT_EQ(layout.index(), expected.index());
  }
}

TEST(Layout, IsThatOfSafetensorsFilesWhoseDataBeginsAtAPage) {
  const Layout layout("model", sample_tensors(), 1 << 20);
  const PlannedFile& file = layout.files().at(0);
  EXPECT_EQ(file.name, "model-00001-of-00001.safetensors");
  std::string bytes = file.header;
  bytes.resize(file.size);
  const auto header = io::parse_safetensors_header(std::as_bytes(std::span(bytes)), file.name);
  EXPECT_EQ(header.data_begin, 4096u);
  ASSERT_EQ(header.entries.size(), layout.tensors().size());
  for (std::size_t i = 0; i < header.entries.size(); ++i) {
    const PlannedTensor& planned = layout.tensors()[i];
    EXPECT_EQ(header.entries[i].name, planned.spec.name);
    EXPECT_EQ(header.entries[i].shape, planned.spec.shape);
    EXPECT_EQ(header.data_begin + header.entries[i].begin, planned.offset);
    EXPECT_EQ(header.entries[i].end - header.entries[i].begin, planned.bytes);
  }
}

TEST(Layout, FillsFilesUpToASize) {
  const Layout layout("optimizer", sample_tensors(), 200);
  for (std::size_t i = 0; i < layout.files().size(); ++i) {
    std::uint64_t bytes = 0;
    int tensors = 0;
    for (const PlannedTensor& each : layout.tensors())
      if (each.file == i) bytes += each.bytes, ++tensors;
    EXPECT_TRUE(bytes <= 200 || tensors == 1) << layout.files()[i].name;
    EXPECT_EQ(layout.files()[i].size, 4096 + bytes);
  }
  EXPECT_GT(layout.files().size(), 1u);
  const auto index = nlohmann::json::parse(layout.index());
  EXPECT_EQ(index["metadata"]["total_size"], 3200 + 128 + 32 + 8 + 3);
  for (const PlannedTensor& each : layout.tensors())
    EXPECT_EQ(index["weight_map"][each.spec.name], layout.files()[each.file].name);
}

TEST(Layout, HasNoFilesForNoTensors) { EXPECT_TRUE(Layout("model", {}, 100).files().empty()); }

TEST(Layout, RefusesDoubledNames) {
  auto tensors = sample_tensors();
  tensors.push_back(tensors[1]);
  EXPECT_THAT([&] { Layout("model", tensors, 100); },
              ::testing::ThrowsMessage<InvalidArgument>(
                  ::testing::HasSubstr("two tensors are named 'block.weight'")));
}

}  // namespace
}  // namespace lockstep::checkpoint
