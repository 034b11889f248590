#include "comm/inquiry.hpp"

#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::comm {
namespace {

using std::chrono::seconds;

const Inquiry::Clock::time_point start{seconds(100)};
constexpr std::span<const int> all;

using Whom = std::vector<int>;

TEST(Inquiry, NamesWhoIsBehindOnceAllHaveAnswered) {
  Inquiry inquiry(0, 4);
  inquiry.begin(20, start, all, start);
  const auto question = inquiry.take_question();
  ASSERT_TRUE(question);
  EXPECT_EQ(question->collective, 20U);
  EXPECT_EQ(question->whom, (Whom{1, 2, 3}));
  EXPECT_FALSE(inquiry.take_question());
  inquiry.add({.rank = 1, .collective = 20, .is_behind = true, .doing = "idle after #19"});
  inquiry.add({.rank = 3, .collective = 20, .is_behind = true, .doing = "in #18"});
  EXPECT_FALSE(inquiry.is_over(start));
  inquiry.add({.rank = 2, .collective = 20, .doing = "in #20"});
  EXPECT_TRUE(inquiry.is_over(start));
  EXPECT_EQ(inquiry.result(), "waiting for rank 1 (idle after #19), rank 3 (in #18)");
}

TEST(Inquiry, EndsWithoutThoseWhoDoNotAnswer) {
  Inquiry inquiry(1, 3);
  inquiry.begin(20, start, all, start);
  inquiry.add({.rank = 0, .collective = 20, .doing = "in #20"});
  EXPECT_FALSE(inquiry.is_over(start + seconds(1)));
  EXPECT_TRUE(inquiry.is_over(start + seconds(3)));
  EXPECT_EQ(inquiry.result(), "waiting for rank 2 (does not answer)");
}

// What they would answer goes through it.
TEST(Inquiry, NamesTheHubAloneWhereNobodyAnswers) {
  Inquiry inquiry(1, 3, 0);
  inquiry.begin(20, start, all, start);
  EXPECT_EQ(inquiry.result(),
            "waiting for rank 0 (does not answer; what ranks ask each other goes through it)");
  inquiry.add({.rank = 0, .collective = 20, .doing = "in #20"});
  EXPECT_EQ(inquiry.result(), "waiting for rank 2 (does not answer)");
  Inquiry of_hub(0, 3, 0);
  of_hub.begin(20, start, all, start);
  EXPECT_EQ(of_hub.result(), "waiting for rank 1 (does not answer), rank 2 (does not answer)");
}

TEST(Inquiry, TakesNoAnswerAboutAnotherCollective) {
  Inquiry inquiry(0, 2);
  inquiry.begin(8, start, all, start);
  inquiry.add({.rank = 1, .collective = 7, .is_behind = true, .doing = "idle"});
  inquiry.add({.rank = 5, .collective = 8, .is_behind = true, .doing = "no member"});
  EXPECT_FALSE(inquiry.is_over(start));
  inquiry.add({.rank = 1, .collective = 8, .doing = "in #8"});
  EXPECT_EQ(inquiry.result(), "though all ranks have begun it: what connects them may be broken");
}

TEST(Inquiry, AsksAndNamesThePartnersOfAMessageAlone) {
  const int partners[]{2};
  Inquiry inquiry(0, 4);
  inquiry.begin(8, start, partners, start);
  EXPECT_EQ(inquiry.take_question()->whom, Whom{2});
  EXPECT_FALSE(inquiry.is_over(start));
  inquiry.add({.rank = 2, .collective = 8, .doing = "busy"});
  EXPECT_TRUE(inquiry.is_over(start));
  EXPECT_EQ(inquiry.result(), "waiting for rank 2 (busy)");
}

TEST(Inquiry, NamesSomeOfMany) {
  Inquiry inquiry(0, 20);
  inquiry.begin(8, start, all, start);
  for (int rank = 1; rank < 20; ++rank)
    inquiry.add({.rank = rank, .collective = 8, .is_behind = true, .doing = "idle"});
  EXPECT_NE(inquiry.result().find("rank 8 (idle) and 11 more"), std::string::npos);
}

TEST(Inquiry, IsOverWhereNobodyHears) {
  Inquiry inquiry(0, 2);
  inquiry.begin(8, start, all, start);
  inquiry.give_up();
  EXPECT_TRUE(inquiry.is_over(start));
  EXPECT_EQ(inquiry.result(), "waiting for the other ranks");
}

// A rank that cannot answer may be none of those that are waited for.
TEST(Inquiry, NamesThoseFirstOfWhichSomethingIsKnown) {
  Inquiry inquiry(0, 20);
  inquiry.begin(8, start, all, start);
  inquiry.add({.rank = 19, .collective = 8, .is_behind = true, .doing = "idle"});
  EXPECT_EQ(inquiry.result().find("waiting for rank 19 (idle), rank 1 (does not answer)"), 0U);
}

// Messages bear the number of the collective that they come before, in a pipeline 0.
TEST(Inquiry, AsksAnewForAnotherOperationOfTheSameNumber) {
  const int partners[]{1};
  Inquiry inquiry(0, 2);
  inquiry.begin(0, start, partners, start);
  EXPECT_TRUE(inquiry.take_question());
  inquiry.add({.rank = 1, .collective = 0, .is_behind = true, .doing = "idle"});
  const auto later = start + seconds(600);
  inquiry.begin(0, later, partners, later);
  EXPECT_TRUE(inquiry.take_question());
  EXPECT_FALSE(inquiry.is_over(later));
  inquiry.add({.rank = 1, .collective = 0, .is_behind = true, .doing = "in another"});
  EXPECT_EQ(inquiry.result(), "waiting for rank 1 (in another)");
}

TEST(Inquiry, WaitsForNoAnswerOfARankThatHasLeft) {
  Inquiry inquiry(0, 3);
  inquiry.begin(8, start, all, start);
  inquiry.add({.rank = 1, .collective = 8, .is_behind = true, .doing = "idle"});
  inquiry.note_left(2);
  EXPECT_EQ(inquiry.take_question()->whom, Whom{1});
  EXPECT_TRUE(inquiry.is_over(start));
  EXPECT_EQ(inquiry.result(), "waiting for rank 1 (idle)");
}

TEST(Inquiry, BlamesNoConnectionsForAStepOfWhichNobodyKnowsHowFarItIs) {
  Inquiry inquiry(0, 2);
  inquiry.begin(8, start, all, start);
  inquiry.add({.rank = 1, .collective = 8, .doing = "in #8"});
  EXPECT_EQ(inquiry.result(Inquiry::Begun::captured_step)
                .find("though all ranks have begun the captured step that it is in: the device"),
            0U);
}

// What another rank's member hears, in words.
struct HeardNews final : GroupMember {
  std::vector<std::string> heard;
  void member_left(const Departure& left) override {
    heard.push_back("left " + std::to_string(left.rank));
  }
  void member_answers(const Standing& standing) override { heard.push_back(standing.doing); }
  void group_failed(const std::string& reason) noexcept override { heard.push_back(reason); }
  void job_failed(const std::string&) noexcept override {}
  void leave() noexcept override {}
  std::string describe_progress() const override { return {}; }
};

// Labels and reasons may be any text, also one with what stands between news.
TEST(GroupNews, AreNoOthersWhateverTextIsInThem) {
  const auto own = std::make_shared<GroupRegistry>(), other = std::make_shared<GroupRegistry>();
  own->set_announcer([&](const std::string& news) { other->receive(news); });
  GroupMembership here(own), there(other);
  HeardNews teller, hearer;
  here.listen(teller);
  there.listen(hearer);
  const std::string label("'x\0left 0 1 0'", 14), reason("/data/a\0b", 9);
  here.answer({.rank = 2, .collective = 20, .is_behind = true, .doing = label});
  here.fail(reason);
  EXPECT_THAT(hearer.heard, ::testing::ElementsAre("'x left 0 1 0'", "/data/a b"));
}

}  // namespace
}  // namespace lockstep::comm
