#include "comm/signature_comparison.hpp"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Signature all_reduce(std::uint64_t sequence, std::int64_t count, std::string label = {}) {
  return Signature({.kind = OperationKind::all_reduce,
                    .dtype = DType::f32,
                    .count = count,
                    .label = std::move(label),
                    .sequence = sequence});
}

Signature message_of(OperationKind kind, int peer, std::int64_t count) {
  return Signature({.kind = kind, .dtype = DType::f32, .count = count, .peer = peer});
}

/// Three ranks, whose batches reach rank 0 at once.
class SignatureComparisonOfThreeRanks : public ::testing::Test {
 protected:
  void call(int rank, const Signature& signature) {
    const auto sender = make_intrusive<SignatureComparison>(
        [this](const std::string& batch) { hub_->take(batch); }, [](const std::string&) {});
    SignatureComparison& own = rank == 0 ? *hub_ : *sender;
    own.note("world", rank, 3, signature);
    own.flush();
  }
  void message(int rank, const Signature& signature, std::uint64_t number) {
    const auto sender = make_intrusive<SignatureComparison>(
        [this](const std::string& batch) { hub_->take(batch); }, [](const std::string&) {});
    SignatureComparison& own = rank == 0 ? *hub_ : *sender;
    own.note_message("world", rank, 3, signature, number);
    own.flush();
  }

  void end(int rank, std::uint64_t subject, const std::string& how) {
    const auto sender = make_intrusive<SignatureComparison>(
        [this](const std::string& batch) { hub_->take(batch); }, [](const std::string&) {});
    (rank == 0 ? *hub_ : *sender).declare("world", rank, 3, subject, how);
  }

  std::vector<std::string> reports_;
  IntrusivePtr<SignatureComparison> hub_ = make_intrusive<SignatureComparison>(
      SignatureComparison::Send{}, [this](const std::string& text) { reports_.push_back(text); });
};

TEST_F(SignatureComparisonOfThreeRanks, IsSilentWhileTheyAgreeInWhateverOrderTheyCome) {
  for (std::uint64_t number = 0; number < 100; ++number)
    for (const int rank : {2, 0, 1}) call(rank, all_reduce(number, 8, rank == 1 ? "" : "bucket 0"));
  EXPECT_TRUE(reports_.empty()) << reports_[0];
}

TEST_F(SignatureComparisonOfThreeRanks, SaysFirstWhoReplaysACapturedStepAndWhoDoesNot) {
  Signature replayed = all_reduce(7, 8, "bucket 0");
  replayed.captured = true;
  call(0, replayed);
  call(2, replayed);
  call(1, all_reduce(7, 8, "bucket 0"));
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_THAT(reports_[0], ::testing::StartsWith(
                               "ranks 0, 2 replay a captured step (StepGraph), rank 1 does not"));
}

TEST_F(SignatureComparisonOfThreeRanks, NamesRanksAndWhatTheyCalled) {
  call(0, all_reduce(7, 8, "bucket 0"));
  call(2, all_reduce(7, 9, "bucket 0"));
  EXPECT_TRUE(reports_.empty());
  call(1, all_reduce(7, 8));
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_THAT(reports_[0],
              AllOf(HasSubstr("the ranks of world disagree"),
                    HasSubstr("ranks 0, 1 called all_reduce #7 of 8 f32 (sum) 'bucket 0'"),
                    HasSubstr("rank 2 called all_reduce #7 of 9 f32 (sum) 'bucket 0'")));
}

// Signatures have not all of it.
TEST_F(SignatureComparisonOfThreeRanks, ShowsALongLabelOfRankZerosInFull) {
  std::string label = "bucket 0 (";
  for (int i = 0; i < 60; ++i) label += "layer" + std::to_string(i) + ", ";
  const Signature own = all_reduce(7, 8, label);
  hub_->note("world", 0, 3, own, label);
  hub_->flush();
  call(1, all_reduce(7, 8, label));
  call(2, all_reduce(7, 9, label));
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_THAT(reports_[0], AllOf(HasSubstr("...', rank 2 called all_reduce #7 of 9"),
                                 HasSubstr("; in full, of ranks 0, 1: 'bucket 0 (layer0, "),
                                 HasSubstr("layer58, layer59, '")));
}

TEST_F(SignatureComparisonOfThreeRanks, DoesNotWaitForARankThatNeverCalls) {
  call(0, all_reduce(0, 8));
  call(1, all_reduce(0, 9));
  for (int i = 0; i < 300 && reports_.empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    hub_->flush();
  }
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_THAT(reports_[0], HasSubstr("rank 1 called all_reduce #0 of 9"));
}

TEST_F(SignatureComparisonOfThreeRanks, RefusesWhatNoRankSends) {
  for (const std::string& batch : {std::string("short"), std::string(300, '\xff')}) {
    reports_.clear();
    const auto hub = make_intrusive<SignatureComparison>(
        SignatureComparison::Send{}, [this](const std::string& text) { reports_.push_back(text); });
    hub->take(batch);
    EXPECT_EQ(reports_.size(), 1u);
  }
}

TEST_F(SignatureComparisonOfThreeRanks, SaysNothingOnceClosed) {
  hub_->close();
  for (int rank = 0; rank < 3; ++rank) call(rank, all_reduce(0, rank));
  EXPECT_TRUE(reports_.empty());
}

TEST_F(SignatureComparisonOfThreeRanks, ComparesTheEndsOfAMessage) {
  const auto send = [&](int from, int to, std::int64_t count, std::uint64_t number) {
    message(from, message_of(OperationKind::send, to, count), number);
  };
  const auto receive = [&](int to, int from, std::int64_t count, std::uint64_t number) {
    message(to, message_of(OperationKind::receive, from, count), number);
  };
  send(1, 2, 8, 0);
  send(2, 1, 9, 0);  // another way
  send(1, 2, 7, 1);
  receive(1, 2, 9, 0);
  receive(2, 1, 8, 0);
  EXPECT_TRUE(reports_.empty());
  receive(2, 1, 6, 1);
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_THAT(reports_[0], HasSubstr("rank 2 of world called receive from rank 1 #0 of 6 f32, but "
                                     "rank 1 called send to rank 2 #0 of 7 f32"));
}

TEST_F(SignatureComparisonOfThreeRanks, ComparesHowTheyEnd) {
  end(1, 7, "after update 3");
  end(2, 8, "after update 5");  // of another subject
  end(2, 7, "after update 3");
  end(0, 8, "after update 5");
  end(1, 8, "after update 5");
  EXPECT_TRUE(reports_.empty());
  end(0, 7, "after update 2");
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_THAT(reports_[0], AllOf(HasSubstr("the ranks of world end differently: rank 0 with 'after "
                                           "update 2', ranks 1, 2 with 'after update 3'")));
}

}  // namespace
}  // namespace lockstep::comm
