#include "comm/control/stop_agreement.hpp"

#include <deque>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/core/error.hpp"

namespace lockstep::comm::control {
namespace {

/// Ranks that are threads; messages wait in queues, as in a connection, until a thread of the
/// receiver takes them.
class AgreeingRanks {
 public:
  explicit AgreeingRanks(int size) : queues_(static_cast<std::size_t>(size)) {
    for (int rank = 0; rank < size; ++rank)
      ranks_.push_back(std::make_unique<StopAgreement>(
          rank, size, [this, rank](const Message& message) { send(rank, message); }));
  }

  int size() const { return static_cast<int>(ranks_.size()); }
  StopAgreement& operator[](int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }

  /// Hands one message over. False if there is none.
  bool deliver(int rank) {
    std::pair<int, Message> next;
    {
      const std::lock_guard lock(mutex_);
      auto& queue = queues_[static_cast<std::size_t>(rank)];
      if (queue.empty()) return false;
      next = queue.front();
      queue.pop_front();
    }
    EXPECT_TRUE((*this)[rank].receive(next.first, next.second)) << next.second.text;
    return true;
  }
  void deliver_all() {
    for (bool any = true; any;) {
      any = false;
      for (int rank = 0; rank < size(); ++rank) any |= deliver(rank);
    }
  }

 private:
  void send(int from, const Message& message) {
    const std::lock_guard lock(mutex_);
    for (int to = 0; to < size(); ++to)
      if (from == 0 ? to != 0 : to == 0)
        queues_[static_cast<std::size_t>(to)].emplace_back(from, message);
  }

  std::mutex mutex_;
  std::vector<std::deque<std::pair<int, Message>>> queues_;
  std::vector<std::unique_ptr<StopAgreement>> ranks_;
};

TEST(StopAgreement, NobodyStopsUnasked) {
  AgreeingRanks job(2);
  for (int step = 0; step < 100; ++step) EXPECT_FALSE(job[0].after(step));
  EXPECT_FALSE(job[0].has_stopped());
  EXPECT_FALSE(job[0].since());
}

TEST(StopAgreement, IsTheStepBehindTheLatestOfAllRanks) {
  AgreeingRanks job(3);
  for (int step = 5; step <= 9; ++step) job[2].after(step);
  job[0].after(5);
  job[1].request("rank 1 got SIGTERM");
  job.deliver_all();
  for (int rank = 0; rank < 3; ++rank) {
    for (int step = rank == 2 ? 10 : 6; step < 10; ++step) EXPECT_FALSE(job[rank].after(step));
    EXPECT_TRUE(job[rank].after(10));
    EXPECT_TRUE(job[rank].after(11));
    EXPECT_TRUE(job[rank].has_stopped());
    EXPECT_EQ(job[rank].reason(), "rank 1 got SIGTERM");
  }
}

TEST(StopAgreement, BeforeAnyStepItIsTheFirst) {
  AgreeingRanks job(2);
  job[0].request("early");
  job.deliver_all();
  EXPECT_TRUE(job[0].after(1000));
  EXPECT_TRUE(job[1].after(1000));
}

TEST(StopAgreement, OfOneRankNeedsNobody) {
  AgreeingRanks job(1);
  EXPECT_FALSE(job[0].after(3));
  job[0].request("alone");
  EXPECT_TRUE(job[0].after(4));
}

TEST(StopAgreement, NoRankWaitsInAStepThatItHadCompletedWhenAsked) {
  AgreeingRanks job(2);
  job[1].after(7);
  job[0].request("soon");
  EXPECT_TRUE(job.deliver(1));  // the question; rank 0 has no answer yet
  std::atomic<bool> has_returned = false;
  std::thread rank_1([&] {
    EXPECT_TRUE(job[1].after(8));  // waits for the decision
    has_returned = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(has_returned);
  job.deliver_all();
  rank_1.join();
  for (int step = 0; step < 8; ++step) EXPECT_FALSE(job[0].after(step));
  EXPECT_TRUE(job[0].after(8));
}

TEST(StopAgreement, TellsTheOthersHowLongAgoItWas) {
  AgreeingRanks job(3);
  job[1].request("long ago", StopAgreement::Clock::now() - std::chrono::seconds(10));
  job.deliver_all();
  for (int rank = 0; rank < 3; ++rank) {
    const auto passed = StopAgreement::Clock::now() - job[rank].since().value();
    EXPECT_GE(passed, std::chrono::milliseconds(9990));
    EXPECT_LT(passed, std::chrono::seconds(60));
  }
}

TEST(StopAgreement, RefusesStepsThatDoNotGrow) {
  AgreeingRanks job(1);
  EXPECT_THROW(job[0].after(-1), InvalidArgument);
  job[0].after(4);
  EXPECT_THROW(job[0].after(4), InvalidArgument);
  EXPECT_THROW(job[0].after(0), InvalidArgument);
}

TEST(StopAgreement, CountsAnewWhereTheNextTrainingBegins) {
  AgreeingRanks job(2);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_FALSE(job[rank].after(7));
    job[rank].begin();
    EXPECT_THROW(job[rank].after(-1), InvalidArgument);
    EXPECT_FALSE(job[rank].after(0));
  }
  EXPECT_FALSE(job[1].after(3));
  job[1].request("test");
  job.deliver_all();
  for (int step = 1; step <= 3; ++step) EXPECT_FALSE(job[0].after(step));
  for (int rank = 0; rank < 2; ++rank) EXPECT_TRUE(job[rank].after(4));
}

TEST(StopAgreement, StopsTheNextTrainingWhereTheOneThatWasAskedHadEnded) {
  AgreeingRanks job(2);
  for (int rank = 0; rank < 2; ++rank) job[rank].after(7);
  job[0].request("test");
  job.deliver_all();
  for (int rank = 0; rank < 2; ++rank) {
    job[rank].begin();
    EXPECT_TRUE(job[rank].after(1));
  }
}

TEST(StopAgreement, RefusesMessagesThatMakeNoSense) {
  StopAgreement hub(0, 3, [](const Message&) {});
  const auto refused = [&](MessageType type, const char* text) {
    EXPECT_FALSE(hub.receive(1, {type, 0, text})) << text;
  };
  refused(MessageType::stop_answer, "4");  // nobody asked
  for (const char* text : {"", "x", "-1 rank 1", "5", "99999999999999999999 rank 1"})
    refused(MessageType::stop_request, text);
  EXPECT_TRUE(hub.receive(1, {MessageType::stop_request, 0, "5 rank 1 got SIGTERM"}));
  EXPECT_TRUE(hub.receive(2, {MessageType::stop_request, 0, "5 rank 2 got SIGTERM"}));
  for (const char* text : {"", "-2", "4 5", "9223372036854775807"})
    refused(MessageType::stop_answer, text);
  EXPECT_TRUE(hub.receive(1, {MessageType::stop_answer, 0, "-1"}));
  refused(MessageType::stop_answer, "4");  // twice
  refused(MessageType::stop_question, "5 rank 1");
  refused(MessageType::stop_decision, "5");
  StopAgreement other(1, 3, [](const Message&) {});
  EXPECT_FALSE(other.receive(0, {MessageType::stop_decision, 0, "5"}));
  EXPECT_TRUE(other.receive(0, {MessageType::stop_question, 0, "5 rank 2 got SIGTERM"}));
  EXPECT_FALSE(other.receive(0, {MessageType::stop_question, 0, "5 rank 2 got SIGTERM"}));
}

/// Ranks at speeds of their own, several of which are told to stop at any time.
std::multiset<std::int64_t> race(unsigned seed, int size) {
  AgreeingRanks job(size);
  std::atomic<int> running = size;
  std::vector<std::int64_t> stops(static_cast<std::size_t>(size), -1);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      std::minstd_rand random(seed * 16 + static_cast<unsigned>(rank));
      const auto pause = 10 + random() % 3 * 20, at = random() % 200;
      for (std::int64_t step = 0;; ++step) {
        std::this_thread::sleep_for(std::chrono::microseconds(pause));
        if (static_cast<unsigned>(step) == at) job[rank].request("it is time");
        if (!job[rank].after(step)) continue;
        stops[static_cast<std::size_t>(rank)] = step;
        break;
      }
      --running;
    });
    threads.emplace_back([&, rank] {
      while (running > 0)
        if (!job.deliver(rank)) std::this_thread::yield();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return {stops.begin(), stops.end()};
}

TEST(StopAgreement, RanksThatAreNotCoupledStopAfterOneStep) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    const int size = 1 + static_cast<int>(seed % 4);
    const auto stops = race(seed, size);
    EXPECT_EQ(stops.count(*stops.begin()), static_cast<std::size_t>(size)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace lockstep::comm::control
