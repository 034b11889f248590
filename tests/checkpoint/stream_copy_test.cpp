#include "checkpoint/stream_copy.hpp"

#include <cstddef>
#include <span>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep::checkpoint {
namespace {

TEST(StreamCopy, CopiesAnyNumberOfBytesFromAndToAnywhereAndNoMore) {
  constexpr std::size_t most = 70'000, around = 80;
  constexpr std::byte untouched{0xa5};
  std::vector<std::byte> from(most + around);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = std::byte(i * 31 % 251);
  for (const std::size_t bytes : {0, 1, 63, 64, 4096, 16'383, 16'384, 16'385, 40'000, 70'000})
    for (const std::size_t source : {0, 1, 8, 77})
      for (const std::size_t target : {0, 3, 8, 64, 79}) {
        std::vector<std::byte> to(most + around, untouched), expected = to;
        for (std::size_t i = 0; i < bytes; ++i) expected[target + i] = from[source + i];
        stream_copy(std::span(to).subspan(target, bytes), from.data() + source);
        ASSERT_EQ(to, expected) << bytes << " bytes from " << source << " to " << target;
      }
}

}  // namespace
}  // namespace lockstep::checkpoint
