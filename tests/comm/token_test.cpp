#include "comm/token.hpp"

#include <gtest/gtest.h>

namespace lockstep::comm {
namespace {

TEST(Token, IsLongAndNeverTheSame) {
  EXPECT_EQ(make_token().size(), 64u);
  EXPECT_NE(make_token(), make_token());
}

TEST(Token, ComparesWholeTexts) {
  EXPECT_TRUE(equal_in_constant_time("abc", "abc"));
  EXPECT_FALSE(equal_in_constant_time("abc", "abd"));
  EXPECT_FALSE(equal_in_constant_time("abc", "ab"));
}

}  // namespace
}  // namespace lockstep::comm
