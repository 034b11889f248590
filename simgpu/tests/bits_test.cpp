#include "memory/bits.hpp"

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "cuda_runtime_api.h"
#include "memory/layout.hpp"

namespace simgpu {
namespace {

constexpr std::uintptr_t map = Layout::initialized_bits;

class SimBits : public ::testing::Test {
 protected:
  static constexpr std::size_t bytes = 600;
  void SetUp() override { ASSERT_EQ(cudaMalloc(&data_, bytes), cudaSuccess); }
  void TearDown() override { EXPECT_EQ(cudaFree(data_), cudaSuccess); }
  std::byte* at(std::size_t offset) const { return static_cast<std::byte*>(data_) + offset; }
  std::vector<bool> read() const {
    std::vector<bool> bits(bytes);
    for (std::size_t i = 0; i < bytes; ++i) bits[i] = !first_clear_bit(map, at(i), 1);
    return bits;
  }

 private:
  void* data_ = nullptr;
};

TEST_F(SimBits, AgreeWithOneFlagAByte) {
  std::mt19937 random(1);
  std::vector<bool> expected(bytes);
  const auto below = [&](std::size_t bound) { return random() % bound; };
  for (int round = 0; round < 500; ++round) {
    const std::size_t begin = below(bytes), count = below(bytes - begin + 1);
    if (round % 3 == 2) {
      const std::size_t from = below(bytes - count + 1);
      // Ranges that overlap are for no one to copy.
      if (from < begin + count && begin < from + count) continue;
      copy_bits(map, at(begin), at(from), count);
      for (std::size_t i = 0; i < count; ++i) expected[begin + i] = expected[from + i];
    } else {
      const bool value = below(2) == 1;
      set_bits(map, at(begin), count, value);
      for (std::size_t i = 0; i < count; ++i) expected[begin + i] = value;
    }
    ASSERT_EQ(read(), expected) << "round " << round;
    std::optional<std::size_t> first;
    for (std::size_t i = 0; i < count && !first; ++i)
      if (!expected[begin + i]) first = i;
    ASSERT_EQ(first_clear_bit(map, at(begin), count), first);
  }
}

TEST(SimLongBits, AreSetAndClearedToTheLastByte) {
  constexpr std::size_t bytes = (std::size_t{40} << 20) + 12345;
  void* data = nullptr;
  ASSERT_EQ(cudaMalloc(&data, bytes), cudaSuccess);
  auto* const begin = static_cast<std::byte*>(data);
  for (const bool value : {true, false}) {
    set_bits(map, begin, bytes, !value);
    set_bits_of_allocation(map, begin + 1, bytes - 2, value);
    EXPECT_EQ(first_clear_bit(map, begin, 1).has_value(), value);
    EXPECT_EQ(first_clear_bit(map, begin + bytes - 1, 1).has_value(), value);
    EXPECT_EQ(first_clear_bit(map, begin + 1, 1).has_value(), !value);
    EXPECT_EQ(first_clear_bit(map, begin + bytes - 2, 1).has_value(), !value);
    if (value) {
      EXPECT_EQ(first_clear_bit(map, begin + 1, bytes - 2), std::nullopt);
    }
  }
  EXPECT_EQ(cudaFree(data), cudaSuccess);
}

}  // namespace
}  // namespace simgpu
