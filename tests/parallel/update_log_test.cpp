#include "lockstep/parallel/update_log.hpp"

#include <gtest/gtest.h>

namespace lockstep::parallel {
namespace {

TEST(UpdateLog, TellsOfEachUpdateAndItsParameters) {
  UpdateLog log;
  EXPECT_EQ(log.take(), "");
  for (const std::size_t parameter : {0, 1, 2, 5}) log.note(parameter, "update 1 with lr 0.1");
  for (const std::size_t parameter : {3, 4}) log.note(parameter, "update 1 with lr 0.2");
  const std::string both =
      "4 parameters after update 1 with lr 0.1, 2 parameters after update 1 with lr 0.2 "
      "(0-2 5, 3-4)";
  EXPECT_EQ(log.take(), both);
  EXPECT_EQ(log.take(), both);
  log.note(0, "update 2 with lr 0.1");
  EXPECT_EQ(log.take(), "1 parameters after update 2 with lr 0.1 (0)");
}

TEST(IndexRanges, TellsNumbersInFewWords) {
  IndexRanges ranges;
  EXPECT_EQ(ranges.text(), "");
  for (const std::size_t index : {3, 4, 5, 0, 1, 7}) ranges.add(index);
  EXPECT_EQ(ranges.text(), "3-5 0-1 7");
  EXPECT_EQ(ranges.count(), 6u);
}

TEST(UpdateLog, StaysShortHoweverManyUpdatesThereAre) {
  UpdateLog one, other;
  for (int i = 0; i < 10000; ++i) {
    one.note(0, "update " + std::to_string(i));
    other.note(0, "update " + std::to_string(i == 5 ? -1 : i));
  }
  EXPECT_LT(one.take().size(), 10000u);
  EXPECT_NE(one.take(), other.take());
}

}  // namespace
}  // namespace lockstep::parallel
