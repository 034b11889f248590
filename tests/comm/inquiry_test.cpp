#include "comm/inquiry.hpp"

#include <gtest/gtest.h>

namespace lockstep::comm {
namespace {

using std::chrono::seconds;

const Inquiry::Clock::time_point start{seconds(100)};

TEST(Inquiry, NamesWhoIsBehindOnceAllHaveAnswered) {
  Inquiry inquiry(0, 4);
  inquiry.begin(20, start);
  EXPECT_EQ(inquiry.take_question(), 20U);
  EXPECT_EQ(inquiry.take_question(), std::nullopt);
  inquiry.add({.rank = 1, .collective = 20, .is_behind = true, .doing = "idle after #19"});
  inquiry.add({.rank = 3, .collective = 20, .is_behind = true, .doing = "in #18"});
  EXPECT_FALSE(inquiry.is_over(start));
  inquiry.add({.rank = 2, .collective = 20, .doing = "in #20"});
  EXPECT_TRUE(inquiry.is_over(start));
  EXPECT_EQ(inquiry.result({}), "waiting for rank 1 (idle after #19), rank 3 (in #18)");
}

TEST(Inquiry, EndsWithoutThoseWhoDoNotAnswer) {
  Inquiry inquiry(1, 3);
  inquiry.begin(20, start);
  inquiry.add({.rank = 0, .collective = 20, .doing = "in #20"});
  EXPECT_FALSE(inquiry.is_over(start + seconds(1)));
  EXPECT_TRUE(inquiry.is_over(start + seconds(3)));
  EXPECT_EQ(inquiry.result({}), "waiting for rank 2 (does not answer)");
}

TEST(Inquiry, TakesWhatAnotherRankWasAnswered) {
  Inquiry inquiry(0, 2);
  inquiry.note_asked(20);
  inquiry.add({.rank = 1, .collective = 20, .is_behind = true, .doing = "idle"});
  inquiry.begin(20, start);
  EXPECT_EQ(inquiry.take_question(), std::nullopt);
  EXPECT_TRUE(inquiry.is_over(start));
}

TEST(Inquiry, TakesNoAnswerAboutAnotherCollective) {
  Inquiry inquiry(0, 2);
  inquiry.add({.rank = 1, .collective = 7, .is_behind = true, .doing = "idle"});
  inquiry.add({.rank = 5, .collective = 8, .is_behind = true, .doing = "no member"});
  inquiry.begin(8, start);
  EXPECT_FALSE(inquiry.is_over(start));
  inquiry.add({.rank = 1, .collective = 8, .doing = "in #8"});
  EXPECT_EQ(inquiry.result({}), "though all ranks have begun it: what connects them may be broken");
}

TEST(Inquiry, NamesThePartnersOfAMessage) {
  Inquiry inquiry(0, 4);
  inquiry.begin(8, start);
  for (const int rank : {1, 2, 3})
    inquiry.add({.rank = rank, .collective = 8, .is_behind = rank != 2, .doing = "busy"});
  const int partners[]{2};
  EXPECT_EQ(inquiry.result(partners), "waiting for rank 2 (busy)");
}

TEST(Inquiry, NamesSomeOfMany) {
  Inquiry inquiry(0, 20);
  inquiry.begin(8, start);
  for (int rank = 1; rank < 20; ++rank)
    inquiry.add({.rank = rank, .collective = 8, .is_behind = true, .doing = "idle"});
  EXPECT_NE(inquiry.result({}).find("rank 8 (idle) and 11 more"), std::string::npos);
}

TEST(Inquiry, IsOverWhereNobodyHears) {
  Inquiry inquiry(0, 2);
  inquiry.begin(8, start);
  inquiry.give_up();
  EXPECT_TRUE(inquiry.is_over(start));
  EXPECT_EQ(inquiry.result({}), "waiting for the other ranks");
}

}  // namespace
}  // namespace lockstep::comm
