#include "comm/inquiry_hub.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/group_news.hpp"
#include "comm/inquiry_job.hpp"

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds, std::chrono::seconds;
using testing::Clock, testing::Job, testing::Member, testing::Ranks;
using ::testing::HasSubstr;

std::vector<Member*> world(Job& job) {
  std::vector<Member*> members;
  for (int rank = 0; rank < job.size(); ++rank) members.push_back(&job[rank]);
  return members;
}

// What a member's error says if each that can be heard answers it alone.
std::string words_of(const std::vector<Member*>& group, int rank, const Ranks& unheard = {},
                     const Ranks& gone = {}) {
  const Member& own = *group[std::size_t(rank)];
  Inquiry inquiry(rank, static_cast<int>(group.size()));
  inquiry.begin(own.collective, Clock::time_point(), own.partners, Clock::time_point());
  for (const int left : gone) inquiry.note_left(left);
  for (int other = 0; other < static_cast<int>(group.size()); ++other)
    if (std::ranges::find(unheard, other) == unheard.end())
      inquiry.add(group[std::size_t(other)]->standing(own.collective));
  return inquiry.result();
}

void be_behind(Member& member) {
  member.is_behind = true;
  member.doing = "idle after all_reduce #19 of 5 f32";
}

class InquiryOf : public ::testing::TestWithParam<int> {
 protected:
  // All others wait for the collective in vain, from about now on.
  void all_ask(const Ranks& but) {
    for (int rank = 0; rank < job.size(); ++rank)
      if (std::ranges::find(but, rank) == but.end())
        job[rank].deadline = job.now + milliseconds(rank % 7);
  }
  void expect_words(const Ranks& but, const Ranks& unheard = {}) {
    for (int rank = 0; rank < job.size(); ++rank) {
      if (std::ranges::find(but, rank) != but.end()) continue;
      EXPECT_EQ(job[rank].words, words_of(world(job), rank, unheard)) << "rank " << rank;
    }
  }

  Job job{GetParam()};
  const int ranks = GetParam();
};

TEST_P(InquiryOf, AllRanksTakesAFewMessagesARank) {
  be_behind(job[3]);
  all_ask({3});
  job.run(milliseconds(600));
  expect_words({3});
  EXPECT_EQ(job[0].words, "waiting for rank 3 (idle after all_reduce #19 of 5 f32)");
  EXPECT_LE(job.messages, 8 * ranks);
  EXPECT_LE(job.bytes, 1000 * std::size_t(ranks));
}

TEST_P(InquiryOf, OneRankThatAloneWaitsTakesFewer) {
  be_behind(job[3]);
  job[5].deadline = job.now;
  job.run(milliseconds(600));
  EXPECT_EQ(job[5].words, words_of(world(job), 5));
  EXPECT_LE(job.messages, 2 * ranks + 10);
}

TEST_P(InquiryOf, RanksOfWhichOneIsStoppedEndsInTime) {
  job.stop(3);
  all_ask({3});
  job.run(milliseconds(2100));
  expect_words({3}, {3});
  EXPECT_EQ(job[0].words, "waiting for rank 3 (does not answer)");
  EXPECT_LE(job.messages, 8 * ranks);
}

TEST_P(InquiryOf, RanksOfWhichTheFirstToAskIsStopped) {
  be_behind(job[3]);
  job[5].deadline = job.now - milliseconds(1);
  job.run(milliseconds(10));
  job.stop(5);
  job.run(milliseconds(300));
  all_ask({3, 5});
  job.run(milliseconds(2100));
  expect_words({3, 5}, {5});
  EXPECT_THAT(job[0].words, HasSubstr("#19 of 5 f32), rank 5 (does not answer)"));
  EXPECT_LE(job.messages, 8 * ranks);
}

// Each ends within 2 seconds, whatever the others had asked before.
TEST_P(InquiryOf, RanksWhoseTimeIsOverAtDifferentMoments) {
  be_behind(job[3]);
  job.stop(2);
  for (int rank = 0; rank < ranks; ++rank)
    if (rank != 2 && rank != 3) job[rank].deadline = job.now + milliseconds(3000 * rank / ranks);
  job.run(milliseconds(5100));
  expect_words({2, 3}, {2});
  for (int rank = 4; rank < ranks; ++rank)
    EXPECT_LE(job[rank].ended_at, *job[rank].deadline + milliseconds(2030));
  EXPECT_LE(job.messages, 10 * ranks);
}

TEST_P(InquiryOf, RanksOfWhichRank0IsStuckAndItsControlChannelIsNot) {
  job[0].is_silent = true;
  all_ask({0});
  job.run(milliseconds(2100));
  expect_words({0}, {0});
}

TEST_P(InquiryOf, RanksBesideAStoppedRank0EndsInTime) {
  Ranks all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(rank);
  job.stop(0);
  all_ask({0});
  job.run(milliseconds(2100));
  expect_words({0}, all);
  EXPECT_LE(job.messages, ranks);
}

TEST_P(InquiryOf, RanksThatAllDoOtherThings) {
  for (int rank = 0; rank < ranks; ++rank) {
    job[rank].is_behind = rank % 2 == 1;
    job[rank].doing = std::string(400, 'x') + std::to_string(rank);
  }
  all_ask({});
  job.run(milliseconds(600));
  expect_words({});
  EXPECT_THAT(job[0].words, HasSubstr(" and " + std::to_string(ranks / 2 - 8) + " more"));
  EXPECT_LE(job.longest, news::max_bytes);
  EXPECT_LE(job.messages, 12 * ranks);
}

TEST_P(InquiryOf, RanksThatWaitForMessages) {
  for (int rank = 0; rank < ranks; ++rank) {
    job[rank].doing = "in receive #0 from rank " + std::to_string(rank);
    job[rank].partners = {(rank + 1) % ranks};
  }
  for (int partner = 1; partner < ranks; ++partner) job[0].partners.push_back(partner);
  all_ask({});
  job.run(milliseconds(600));
  expect_words({});
  EXPECT_LE(job.messages, 8 * ranks);
}

TEST_P(InquiryOf, RanksOfWhichOneLeavesMeanwhile) {
  be_behind(job[3]);
  job[2].is_silent = true;
  all_ask({2, 3});
  job.run(milliseconds(300));
  EXPECT_EQ(job[0].words, "");
  job[2].leave_group();
  job.run(milliseconds(300));
  for (int rank = 4; rank < ranks; ++rank)
    EXPECT_EQ(job[rank].words, words_of(world(job), rank, {2}, {2}));
}

// All answers are 2 seconds old at most: rank 4 has become late, and rank 3 is so no longer.
TEST_P(InquiryOf, RanksThatAskLaterThanAnswersCount) {
  be_behind(job[3]);
  job[5].deadline = job.now;
  job.run(milliseconds(2500));
  std::swap(job[3].doing, job[4].doing);
  std::swap(job[3].is_behind, job[4].is_behind);
  all_ask({4, 5});
  job.run(milliseconds(600));
  expect_words({4, 5});
  EXPECT_EQ(job[0].words, "waiting for rank 4 (idle after all_reduce #19 of 5 f32)");
}

// Every second rank is of the one; their orders differ from the job's.
TEST_P(InquiryOf, SeveralGroupsAsksTheirMembersAlone) {
  std::vector<std::vector<Member*>> groups;
  for (const int first : {0, 1}) {
    Ranks members;
    for (int rank = first; rank < ranks; rank += 2) members.insert(members.begin(), rank);
    groups.push_back(job.split("world/0." + std::to_string(first), members));
  }
  for (const auto& group : groups) {
    be_behind(*group[1]);
    for (Member* const member : group)
      if (member != group[1]) member->deadline = job.now;
  }
  job.run(milliseconds(600));
  for (const auto& group : groups)
    for (int rank = 2; rank < static_cast<int>(group.size()); ++rank)
      EXPECT_EQ(group[std::size_t(rank)]->words, words_of(group, rank));
  EXPECT_EQ(groups[1][0]->words, "waiting for rank 1 (idle after all_reduce #19 of 5 f32)");
  EXPECT_LE(job.messages, 8 * ranks);
}

INSTANTIATE_TEST_SUITE_P(Jobs, InquiryOf, ::testing::Values(32, 64, 256),
                         ::testing::PrintToStringParamName());

// All may see it end at once, and each says so.
TEST(InquiryHub, HandsOnTheFirstFailureOfAGroupAlone) {
  Job job(64);
  for (Member* const member : world(job)) member->fail("rank 3 timed out");
  job.run(milliseconds(100));
  int told = 0;
  for (const Member* const member : world(job)) told += member->failures;
  EXPECT_EQ(told, 63);
  EXPECT_LE(job.messages, 2 * 64);
}

TEST(InquiryHub, TakesBoundedMemoryForQuestionsWithoutEnd) {
  InquiryHub hub(256);
  std::size_t questions = 0;
  for (int i = 0; i < 5'000; ++i) {
    hub.take(1, "asks 0 " + std::to_string(i) + " 0-255", Clock::time_point());
    questions += hub.take_due(Clock::time_point()).size();
  }
  EXPECT_LE(questions, std::size_t{1} << 17);
}

TEST(InquiryHub, TakesAnswersOfThoseWhoWereAskedAlone) {
  InquiryHub hub(4);
  const Clock::time_point now{seconds(100)};
  hub.take(1, "asks 0 20 0,2", now);
  EXPECT_EQ(hub.take_due(now).size(), 2U);
  EXPECT_TRUE(hub.take(3, "answers 0 3 20 1 idle", now));
  EXPECT_TRUE(hub.take(2, "answers 0 2 21 1 idle", now));
  EXPECT_TRUE(hub.take_due(now + seconds(1)).empty());
  hub.take(2, "answers 0 2 20 1 idle", now);
  const auto due = hub.take_due(now + seconds(1));
  ASSERT_EQ(due.size(), 1U);
  EXPECT_EQ(due[0].rank, 1);
  EXPECT_EQ(due[0].text, "answers 0 2 20 1 idle");
}

TEST(GroupNews, ListsOfRanksAreShort) {
  const Ranks ranks{0, 1, 2, 3, 8, 16, 24, 30, 31};
  std::span<const int> rest = ranks;
  EXPECT_EQ(news::take_rank_list(rest, 100), "0-3,8-24:8,30,31");
  EXPECT_TRUE(rest.empty());
  EXPECT_EQ(news::ranks_in("0-3,8-24:8,30,31", 32), ranks);
  rest = ranks;
  EXPECT_EQ(news::take_rank_list(rest, 12), "0-3,8-24:8");
  EXPECT_EQ(rest.size(), 2U);
}

TEST(GroupNews, ListsOfRanksNameNoneBeyondTheJob) {
  EXPECT_EQ(news::ranks_in("-1,2-9,70,3:0,1-2147483647:2147483647", 4), (Ranks{2, 3, 1}));
}

// A rank that is asked once more, as its answer has grown old, is waited for once more.
TEST(InquiryHub, GivesAnswersNoMoreOftenWhereRanksAreAskedAgain) {
  constexpr int ranks = 64;
  InquiryHub hub(ranks);
  Clock::time_point now{seconds(100)};
  std::size_t given = 0;
  const auto ask = [&](int rank) { hub.take(rank, "asks 0 20 0-63", now); };
  const auto all_answer_but_rank_3 = [&] {
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank != 3) hub.take(rank, "answers 0 " + std::to_string(rank) + " 20 0 in", now);
      given += hub.take_due(now).size();
    }
  };
  ask(1);
  all_answer_but_rank_3();
  now += milliseconds(1900);
  for (int rank = 4; rank < ranks - 1; ++rank) ask(rank);
  given = hub.take_due(now).size();
  now += milliseconds(200);
  ask(ranks - 1);
  all_answer_but_rank_3();
  EXPECT_LE(given, 4 * std::size_t{ranks});
}

TEST(InquiryHub, TakesNoRanksThatCannotBe) {
  InquiryHub hub(8);
  const Clock::time_point now{seconds(100)};
  hub.take(1, "asks 0 20 0-7", now);
  hub.take_due(now);
  hub.take(2, "answers 0 -1 20 1 idle", now);
  hub.take(0, "answers 0 0 20 1 idle", now);
  hub.take(3, "answers 0 1 20 1 idle", now);
  hub.take(5, "answers 0 8 20 1 idle", now);
  hub.take(6, "answers 0 2147483647 20 1 idle", now);
  const auto due = hub.take_due(now);
  ASSERT_EQ(due.size(), 1u);
  EXPECT_EQ(due[0].text, "answers 0 0,1 20 1 idle");
}

// One rank that asks for ever more leaves room for the others.
TEST(InquiryHub, HearsTheOthersBesideARankThatAsksForEverMore) {
  constexpr int ranks = 512;
  InquiryHub hub(ranks);
  const Clock::time_point now{seconds(100)};
  for (int i = 0; i < 1000; ++i) hub.take(7, "asks zz " + std::to_string(i) + " 0-511", now);
  hub.take_due(now);
  hub.take(1, "asks 0 20 0-511", now);
  EXPECT_EQ(hub.take_due(now).size(), std::size_t{ranks - 1});
}

}  // namespace
}  // namespace lockstep::comm
