#include "comm/signature.hpp"

#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/shortened.hpp"
#include "lockstep/comm/errors.hpp"

namespace lockstep::comm {
namespace {

Signature all_reduce_signature(std::int64_t count, const std::string& label = "") {
  Operation operation;
  operation.kind = OperationKind::all_reduce;
  operation.dtype = DType::f32;
  operation.count = count;
  operation.label = label;
  return Signature(operation);
}

TEST(Signature, LabelsCountOnlyWhereBothRanksGiveOne) {
  EXPECT_TRUE(all_reduce_signature(4, "a").agrees_with(all_reduce_signature(4)));
  EXPECT_FALSE(all_reduce_signature(4, "a").agrees_with(all_reduce_signature(4, "b")));
}

TEST(Signature, LongLabelsThatBeginAlikeStillDiffer) {
  const std::string beginning(500, 'x');
  EXPECT_FALSE(all_reduce_signature(4, beginning + "a")
                   .agrees_with(all_reduce_signature(4, beginning + "b")));
}

TEST(Signature, LongLabelsEndWithAWholeWordForOthersAndAreWholeInFull) {
  Operation operation{.kind = OperationKind::barrier};
  for (int i = 0; i < 60; ++i) operation.label += "layer" + std::to_string(i) + ", ";
  const std::string shorter(Signature(operation).short_label());
  EXPECT_THAT(shorter, ::testing::EndsWith(", ..."));
  EXPECT_GT(shorter.size(), 230U);
  EXPECT_EQ(operation.label.find(shorter.substr(0, shorter.size() - 3)), 0U);
  EXPECT_THAT(describe({&operation, 1}), ::testing::EndsWith(", ...'"));
  EXPECT_THAT(describe_in_full({&operation, 1}), ::testing::HasSubstr("layer59, '"));
}

TEST(Signature, LongWordsAreCutBehindAWholeCharacter) {
  const std::string word = "grads " + std::string(300, 'x');
  EXPECT_EQ(shortened(word, 247), word.substr(0, 244) + "...");
  EXPECT_EQ(shortened("failed 0 " + std::string(9000, '/'), 8192).size(), 8192U);
  std::string letters;
  while (letters.size() < 300) letters += "\xD0\xBA";
  EXPECT_EQ(shortened(letters, 248), letters.substr(0, 244) + "...");
  EXPECT_EQ(shortened(std::string(300, '\x80'), 247).size(), 244U);  // no text at all
}

// A rank that leaves out a step calls the same operation, on as many elements, at the same place.
TEST(Signature, TellsTheStepsOfOneOwnerApart) {
  Operation operation;
  operation.kind = OperationKind::all_reduce;
  operation.label = "bucket 2";
  operation.id = {.owner = 3, .step = 6, .part = 2};
  const Signature late(operation);
  operation.id.step = 7;
  const Signature early(operation);
  EXPECT_TRUE(late.agrees_with(late));
  EXPECT_FALSE(late.agrees_with(early));
  EXPECT_FALSE(late.agrees_with(all_reduce_signature(0)));
  try {
    require_agreement(std::vector{late, early}, "world");
    FAIL() << "no error";
  } catch (const Mismatch& error) {
    EXPECT_THAT(error.what(),
                ::testing::AllOf(::testing::HasSubstr("'bucket 2' [owner 3, step 6, part 2]"),
                                 ::testing::HasSubstr("'bucket 2' [owner 3, step 7, part 2]"),
                                 ::testing::HasSubstr("a rank has left out a step"),
                                 ::testing::HasSubstr("NoGradGuard")));
  }
}

TEST(Signature, NamesTheRanksOutsideTheMajority) {
  std::vector<Signature> ranks(5, all_reduce_signature(10));
  ranks[0] = all_reduce_signature(11);
  ranks[3] = all_reduce_signature(12);
  try {
    require_agreement(ranks, "world");
    FAIL() << "no error";
  } catch (const Mismatch& error) {
    EXPECT_THAT(error.what(),
                ::testing::AllOf(::testing::HasSubstr("rank 1 called all_reduce #0 of 10 f32"),
                                 ::testing::HasSubstr("rank 0 called all_reduce #0 of 11"),
                                 ::testing::HasSubstr("rank 3 called all_reduce #0 of 12")));
  }
}

TEST(Signature, TellsInWhichWordsCallsDiffer) {
  EXPECT_EQ(describe_difference(all_reduce_signature(10), all_reduce_signature(12)),
            "; the difference: \"10\" and \"12\"; all ranks must make the same calls in the same "
            "order");
  EXPECT_EQ(describe_difference(all_reduce_signature(4, "update 3 with lr 0.15: bucket 0"),
                                all_reduce_signature(4, "update 3 with lr 0.1: bucket 0")),
            "; the difference: \"0.15:\" and \"0.1:\"; labels, which tell what led to a call, must "
            "be the same on all ranks");
  EXPECT_EQ(describe_difference(all_reduce_signature(4, "with one"),
                                all_reduce_signature(4, "with one more")),
            "; the difference: \"one'\" and \"one more'\"; labels, which tell what led to a call, "
            "must be the same on all ranks");
  // Only the beginning of a label travels.
  const std::string beginning(500, 'x');
  EXPECT_EQ(describe_difference(all_reduce_signature(4, beginning + "a"),
                                all_reduce_signature(4, beginning)),
            "; labels, which tell what led to a call, must be the same on all ranks");
}

// The end of a label that is cut is unlike that of one that is not.
TEST(Signature, ADisagreementIsToldByItsBeginningWhereTheRestIsCut) {
  std::string names = "bucket 0 (";
  for (int i = 0; i < 13; ++i) names += "layer." + std::to_string(i) + ".weight, ";
  const std::vector both{all_reduce_signature(4, "update 3: " + names),
                         all_reduce_signature(4, "update 3, update 4 of all parameters: " + names)};
  const std::string cause = describe_cause(both[0], "rank 0", both[1], "rank 1");
  EXPECT_THAT(cause, ::testing::AllOf(::testing::StartsWith("\"'update 3: bucket 0 ("),
                                      ::testing::HasSubstr("\"'update 3, update 4 of all")));
  EXPECT_LT(cause.size(), 300u);
  try {
    require_agreement(both, "world");
    FAIL() << "no error";
  } catch (const Mismatch& error) {
    EXPECT_THAT(error.what(), ::testing::Not(::testing::HasSubstr("the difference")));
  }
}

TEST(Signature, ADisagreementSaysFirstWhatDiffersOnWhichRanks) {
  try {
    require_agreement(std::vector{all_reduce_signature(4, "update 3 with lr 0.1, SGD: bucket 0"),
                                  all_reduce_signature(4, "update 3 with lr 0.2, SGD: bucket 0")},
                      "world");
    FAIL() << "no error";
  } catch (const Mismatch& error) {
    EXPECT_THAT(error.what(),
                ::testing::StartsWith("the ranks of world disagree on their next collective: "
                                      "\"lr 0.1,\" on rank 0, \"lr 0.2,\" on rank 1\n  "
                                      "rank 0 called all_reduce"));
  }
  Operation other{.kind = OperationKind::barrier};
  try {
    require_agreement(std::vector{all_reduce_signature(4), Signature(other)}, "world");
    FAIL() << "no error";
  } catch (const Mismatch& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("next collective: rank 0 called all_reduce"));
  }
}

TEST(Signature, DescribesForeignBytesWithoutTrustingThem) {
  Signature noise;
  std::memset(static_cast<void*>(&noise), 0xFF, sizeof noise);
  EXPECT_EQ(noise.describe(), "a message of unknown form");
}

}  // namespace
}  // namespace lockstep::comm
