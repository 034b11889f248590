#include "lockstep/core/philox.hpp"

#include <gtest/gtest.h>

#include "lockstep/core/random.hpp"

namespace lockstep {
namespace {

void expect_block(PhiloxBlock counter, std::uint32_t key0, std::uint32_t key1,
                  PhiloxBlock expected) {
  const PhiloxBlock actual = philox4x32_10(counter, key0, key1);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(actual.word[i], expected.word[i]) << "word " << i;
}

// Known-answer vectors of the Random123 distribution (kat_vectors, philox4x32 10).
TEST(Philox, MatchesPublishedVectors) {
  expect_block({{0, 0, 0, 0}}, 0, 0, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}});
  const std::uint32_t f = 0xffffffff;
  expect_block({{f, f, f, f}}, f, f, {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}});
  expect_block({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0,
               {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}});
}

TEST(Generator, RepeatsItsSequenceAfterReseeding) {
  Generator generator(7);
  const auto first = generator.next(), second = generator.next();
  EXPECT_NE(first.word(0), second.word(0));
  generator.manual_seed(7);
  EXPECT_EQ(generator.next().word(5), first.word(5));
}

}  // namespace
}  // namespace lockstep
