#include "comm/session/thread_advice.hpp"

#include <initializer_list>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::comm {
namespace {

using ::testing::HasSubstr;

cpu_set_t cores(std::initializer_list<int> numbers) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int number : numbers) CPU_SET(number, &set);
  return set;
}

RankThreads rank(std::initializer_list<int> own, int threads, bool is_chosen = false) {
  return {cores(own), cores({0, 1, 2, 3}), threads, is_chosen};
}

TEST(ThreadAdvice, IsSilentWhereEachThreadHasACore) {
  EXPECT_EQ(thread_advice(std::vector{rank({0, 1, 2, 3}, 4)}), "");
  EXPECT_EQ(thread_advice(std::vector{rank({0, 1, 2, 3}, 2), rank({0, 1, 2, 3}, 2)}), "");
  EXPECT_EQ(thread_advice(std::vector{rank({0, 1}, 2), rank({2, 3}, 2)}), "");
  EXPECT_EQ(thread_advice(std::vector{rank({0, 1, 2, 3}, 1, true)}), "");
}

TEST(ThreadAdvice, NamesTheVariableWhereThreadsShareCores) {
  const auto advice = thread_advice(std::vector{rank({0, 1}, 2, true), rank({0, 1}, 2, true)});
  EXPECT_THAT(advice, HasSubstr("4 threads of 2 ranks share 2 cores"));
  EXPECT_THAT(advice, HasSubstr("OMP_NUM_THREADS=1"));
  // Enough cores in all, but not for this rank.
  EXPECT_THAT(thread_advice(std::vector{rank({0}, 4, true), rank({1, 2, 3}, 1, true)}),
              HasSubstr("OMP_NUM_THREADS"));
}

TEST(ThreadAdvice, SaysNothingOfMoreRanksThanCores) {
  EXPECT_EQ(thread_advice(std::vector(8, rank({0, 1, 2, 3}, 1))), "");
}

TEST(ThreadAdvice, NamesTheFlagsWhereBindingLeavesCoresIdle) {
  EXPECT_THAT(thread_advice(std::vector{rank({0}, 1)}), HasSubstr("1 rank to 1 of 4 cores"));
  const auto advice = thread_advice(std::vector{rank({0}, 1), rank({1}, 1)});
  EXPECT_THAT(advice, HasSubstr("--bind-to none"));
  EXPECT_THAT(advice, HasSubstr("PE=N"));
  // One thread was asked for: one core is enough.
  EXPECT_EQ(thread_advice(std::vector{rank({0}, 1, true)}), "");
}

RankThreads with_quota(RankThreads rank, double cores, std::uint64_t group = 1) {
  rank.quota = {cores, group};
  return rank;
}

TEST(ThreadsFor, DividesCoresAmongThoseThatShareThem) {
  const std::vector shared(2, rank({0, 1, 2, 3}, 1));
  EXPECT_EQ(threads_for(shared[0], shared), 2);
  const std::vector own{rank({0, 1, 2}, 1), rank({3}, 1)};
  EXPECT_EQ(threads_for(own[0], own), 3);
  EXPECT_EQ(threads_for(own[1], own), 1);
  const std::vector unknown{rank({}, 1)};
  EXPECT_EQ(threads_for(unknown[0], unknown), 0);
}

TEST(ThreadsFor, KeepsWithinTheQuotaOfTheControlGroup) {
  const std::vector one{with_quota(rank({0, 1, 2, 3}, 1), 2.5)};
  EXPECT_EQ(threads_for(one[0], one), 2);
  const std::vector less_than_a_core{with_quota(rank({0, 1, 2, 3}, 1), 0.5)};
  EXPECT_EQ(threads_for(less_than_a_core[0], less_than_a_core), 1);
  const std::vector bound{with_quota(rank({0, 1}, 1), 2), with_quota(rank({2, 3}, 1), 2)};
  EXPECT_EQ(threads_for(bound[0], bound), 1);
  const std::vector apart{with_quota(rank({0, 1}, 1), 2, 1), with_quota(rank({2, 3}, 1), 2, 2)};
  EXPECT_EQ(threads_for(apart[0], apart), 2);
}

TEST(ThreadAdvice, NamesTheQuotaThatThreadsExceed) {
  const auto advice = thread_advice(std::vector{with_quota(rank({0, 1, 2, 3}, 4, true), 2)});
  EXPECT_THAT(advice, HasSubstr("allows 2 cores of processor time to 1 rank with 4 threads"));
  EXPECT_THAT(advice, HasSubstr("OMP_NUM_THREADS=2"));
  EXPECT_EQ(thread_advice(std::vector{with_quota(rank({0, 1, 2, 3}, 2, true), 2)}), "");
}

}  // namespace
}  // namespace lockstep::comm
