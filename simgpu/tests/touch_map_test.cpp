#include "kernels/touch_map.hpp"

#include <gtest/gtest.h>

namespace simgpu {
namespace {

constexpr std::uintptr_t base = Layout::begin + (1 << 20);

TEST(TouchMap, GivesEachHullItsOwnRangesWhereTheyLieClose) {
  TouchMap map;
  for (std::uintptr_t at = base; at < base + 64; at += 16) map.touch(at, 16);
  for (std::uintptr_t at = base + 512; at < base + 640; at += 16) map.touch(at, 16);
  const auto second = map.take({base + 512, base + 640});
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].begin, base + 512);
  EXPECT_EQ(second[0].end, base + 640);
  const auto first = map.take({base, base + 64});
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].begin, base);
  EXPECT_EQ(first[0].end, base + 64);
}

TEST(TouchMap, ForgetsWhatWasTaken) {
  TouchMap map;
  map.touch(base + 1020, 8);
  EXPECT_EQ(map.take({base + 1020, base + 1028}).size(), 1u);
  EXPECT_TRUE(map.take({base, base + 4096}).empty());
}

}  // namespace
}  // namespace simgpu
