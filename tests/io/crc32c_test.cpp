#include "lockstep/io/crc32c.hpp"

#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "io/crc32c_paths.hpp"
#include "lockstep/core/philox.hpp"

namespace lockstep::io {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::vector<std::byte> random_bytes(std::size_t count) {
  const PhiloxState numbers{7, 0};
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(numbers.word(i));
  return bytes;
}

// Bit by bit, as RFC 3720 defines it.
std::uint32_t naive(std::span<const std::byte> bytes) {
  std::uint32_t crc = 0xFFFFFFFF;
  for (const std::byte byte : bytes) {
    crc ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78 : 0);
  }
  return ~crc;
}

TEST(Crc32c, GivesTheValuesOfRfc3720) {
  EXPECT_EQ(crc32c({}), 0u);
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xE3069283u);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0})), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0xFF})), 0x62A8AB43u);
}

TEST(Crc32c, IsTheSameByEveryPathForAnySize) {
  const std::vector<std::byte> bytes = random_bytes(40'000);
  for (const Crc32cPath& path : crc32c_paths())
    for (const std::size_t size : {0, 1, 7, 8, 9, 63, 255, 256, 511, 512, 513, 768, 1023, 12'287,
                                   12'288, 12'289, 36'864, 39'990})
      for (const std::size_t offset : {0, 1, 5}) {
        const auto part = std::span(bytes).subspan(offset, size);
        EXPECT_EQ(~path.update(part.data(), size, ~0u), naive(part)) << path.name << ' ' << size;
        EXPECT_EQ(crc32c(part), naive(part)) << size;
      }
}

TEST(Crc32c, GoesOnAndCombinesAtAnyPlace) {
  const std::vector<std::byte> bytes = random_bytes(20'000);
  const std::uint32_t whole = crc32c(bytes);
  for (const std::size_t middle : {0, 1, 100, 12'288, 19'999, 20'000}) {
    const auto first = std::span(bytes).first(middle), second = std::span(bytes).subspan(middle);
    EXPECT_EQ(crc32c(second, crc32c(first)), whole) << middle;
    EXPECT_EQ(crc32c_combine(crc32c(first), crc32c(second), second.size()), whole) << middle;
  }
}

TEST(Crc32c, IsPutTogetherFromPartsInAnyOrder) {
  const std::vector<std::byte> bytes = random_bytes(20'000);
  std::uint32_t sum = crc32c_of_zeros(bytes.size());
  for (const auto& [begin, end] :
       {std::pair{15'000, 20'000}, {0, 1}, {1, 14'999}, {14'999, 15'000}})
    sum ^= crc32c_contribution(std::span(bytes).subspan(begin, end - begin), 20'000 - end);
  EXPECT_EQ(sum, crc32c(bytes));
  EXPECT_EQ(crc32c_of_zeros(777), crc32c(std::vector<std::byte>(777)));
}

TEST(Crc32c, ASingleFlippedBitIsFound) {
  std::vector<std::byte> bytes(1001);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 37 % 251);
  const std::uint32_t whole = crc32c(bytes);
  for (const std::size_t byte : {0, 1, 500, 999, 1000})
    for (int bit = 0; bit < 8; ++bit) {
      bytes[byte] ^= std::byte{1} << bit;
      const auto found = find_flipped_bit(whole, crc32c(bytes), bytes.size());
      ASSERT_TRUE(found);
      EXPECT_EQ(found->byte, byte);
      EXPECT_EQ(found->bit, bit);
      bytes[byte] ^= std::byte{1} << bit;
    }
  bytes[3] ^= std::byte{5};
  EXPECT_FALSE(find_flipped_bit(whole, crc32c(bytes), bytes.size()));
}

}  // namespace
}  // namespace lockstep::io
