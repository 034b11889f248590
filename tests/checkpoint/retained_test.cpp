#include "checkpoint/retained.hpp"

#include <cerrno>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/manifest.hpp"
#include "checkpoint/thread_job.hpp"
#include "io/file_calls.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::checkpoint {
namespace {

using ::testing::ElementsAre, testing::steps_in;

/// A folder of checkpoints of nothing but a metric each.
class RetainedTest : public ::testing::Test {
 protected:
  ~RetainedTest() override { io::file_calls = {}; }

  void write(std::int64_t step, double metric) const {
    const std::string name = "run/step-" + std::to_string(step);
    std::filesystem::create_directories(folder_ / name);
    folder_.write(name + "/manifest.json",
                  write_manifest({.step = step, .version = "1", .metric = metric, .files = {}}));
  }
  /// @return the steps of what stays.
  std::vector<std::int64_t> save(Retained& retained, std::int64_t step, double metric,
                                 bool read_back = true) {
    write(step, metric);
    Snapshot snapshot;
    snapshot.step = step;
    snapshot.metric = metric;
    retained.note_saved(snapshot);
    retained.prune(run_, {.keep_last = 1, .keep_best = true, .read_back = read_back}, snapshot);
    return steps_in(folder_ / "run");
  }

  const testing::TemporaryFolder folder_;
  RunFolder run_{folder_ / "run", 0};
};

TEST_F(RetainedTest, TheBestThatIsWholeStaysUntilABetterOneIsKnownToBe) {
  Retained retained(folder_ / "run");
  EXPECT_THAT(save(retained, 1, 0.1), ElementsAre(1));
  retained.note_whole(1);
  EXPECT_THAT(save(retained, 2, 0.5), ElementsAre(1, 2));
  retained.note_whole(2);
  EXPECT_THAT(save(retained, 3, 0.05), ElementsAre(1, 2, 3));
  retained.note_damaged(3);
  EXPECT_THAT(save(retained, 4, 0.6), ElementsAre(1, 2, 4));
  retained.note_whole(4);
  EXPECT_THAT(save(retained, 5, 0.05), ElementsAre(1, 4, 5));
  retained.note_whole(5);
  EXPECT_THAT(save(retained, 6, 0.6), ElementsAre(5, 6));
}

TEST_F(RetainedTest, TheBestOfAFormerRunStaysUntilABetterOneIsKnownToBeWhole) {
  write(1, 0.1);
  write(2, 0.5);
  Retained retained(folder_ / "run");
  retained.note_whole(2);
  EXPECT_THAT(save(retained, 3, 0.05), ElementsAre(1, 2, 3));
  EXPECT_THAT(save(retained, 4, 0.6), ElementsAre(1, 2, 3, 4));
  retained.note_whole(3);
  EXPECT_THAT(save(retained, 5, 0.6), ElementsAre(3, 5));
}

TEST_F(RetainedTest, TheLoadedOneStaysWhereABetterOneCouldNotBeLoaded) {
  write(1, 0.5);
  write(2, 0.1);
  Retained retained(folder_ / "run");
  retained.note_not_loaded(2);
  retained.note_whole(1);
  EXPECT_THAT(save(retained, 3, 1), ElementsAre(1, 2, 3));
  retained.note_whole(3);
  EXPECT_THAT(save(retained, 4, 1), ElementsAre(1, 2, 3, 4));
  retained.note_whole(4);
  EXPECT_THAT(save(retained, 5, 1), ElementsAre(1, 2, 4, 5));
}

TEST_F(RetainedTest, WhatCannotBeReadForAWhileStays) {
  for (const std::int64_t step : {1, 2}) write(step, 0.1 * static_cast<double>(step));
  static const char* away;
  away = "step-1";
  io::file_calls.pread = [](int file, void* data, std::size_t size, off_t offset) {
    const auto path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(file));
    const bool is_away = path.parent_path().filename() == away;
    if (is_away) errno = EIO;
    return is_away ? -1 : ::pread(file, data, size, offset);
  };
  Retained retained(folder_ / "run");
  EXPECT_THAT(save(retained, 3, 0.3), ElementsAre(1, 2, 3));
  away = "";
  EXPECT_THAT(save(retained, 4, 0.4), ElementsAre(1, 4));
  away = "step-1";
  retained.note_damaged(4);
  EXPECT_THAT(save(retained, 5, 0.05), ElementsAre(1, 5));
}

TEST_F(RetainedTest, WhatAFormerStartHasFoundIsKnownStill) {
  {
    Retained retained(folder_ / "run");
    save(retained, 1, 0.2);
    retained.note_whole(1);
    save(retained, 2, 0.1);
    retained.note_damaged(2);
    save(retained, 3, 0.9);
    retained.note_whole(3);
    EXPECT_THAT(save(retained, 4, 0.8), ElementsAre(1, 3, 4));
    retained.note_damaged(4);
    EXPECT_THAT(save(retained, 5, 0.05), ElementsAre(1, 3, 5));
    retained.note_damaged(5);
  }
  EXPECT_TRUE(is_known_damaged(folder_ / "run/step-5"));
  EXPECT_EQ(best(folder_ / "run")->step, 1);
  Retained retained(folder_ / "run");
  EXPECT_THAT(save(retained, 6, 0.7), ElementsAre(1, 3, 6));  // 3 is the newest that is whole
  retained.note_whole(6);
  EXPECT_THAT(save(retained, 7, 0.7), ElementsAre(1, 6, 7));
}

TEST_F(RetainedTest, OneThatIsFoundWholeLaterIsNotDamagedAnyMore) {
  write(1, 0.2);
  write(2, 0.1);
  Retained(folder_ / "run").note_damaged(2);
  EXPECT_EQ(best(folder_ / "run")->step, 1);
  Retained(folder_ / "run").note_whole(2);
  EXPECT_EQ(best(folder_ / "run")->step, 2);
  EXPECT_FALSE(is_known_damaged(folder_ / "run/step-2"));
  Retained retained(folder_ / "run");
  EXPECT_THAT(save(retained, 3, 0.3), ElementsAre(2, 3));
}

TEST_F(RetainedTest, OneThatCouldNotBeLoadedIsNotKnownToBeWholeBySomeFormerStart) {
  write(1, 0.2);
  write(2, 0.1);
  Retained(folder_ / "run").note_whole(1);
  Retained(folder_ / "run").note_whole(2);
  Retained(folder_ / "run").note_not_loaded(2);
  Retained retained(folder_ / "run");
  EXPECT_THAT(save(retained, 3, 0.3), ElementsAre(1, 2, 3));
}

TEST_F(RetainedTest, ANoteOfACheckpointThatWasReplacedDoesNotCount) {
  write(1, 0.2);
  Retained(folder_ / "run").note_damaged(1);
  folder_.write(
      "run/step-1/manifest.json",
      write_manifest(
          {.step = 1, .generation = 1, .save = 4, .version = "1", .metric = 0.2, .files = {}}));
  EXPECT_FALSE(is_known_damaged(folder_ / "run/step-1"));
  Retained(folder_ / "run").note_damaged(1);
  EXPECT_TRUE(is_known_damaged(folder_ / "run/step-1"));
}

TEST_F(RetainedTest, ANoteWithAnyBitFlippedDoesNotCount) {
  write(1, 0.2);
  Retained(folder_ / "run").note_damaged(1);
  const std::string whole = testing::read_file(folder_ / "run/step-1/verification");
  ASSERT_EQ(whole.substr(0, whole.find('\n')), "damaged: save 0 of generation 0");
  for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string text = whole;
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ 1 << bit % 8);
    folder_.write("run/step-1/verification", text);
    ASSERT_FALSE(is_known_damaged(folder_ / "run/step-1")) << bit;
  }
}

TEST_F(RetainedTest, ADamagedManifestIsKnownToEveryStart) {
  write(1, 0.2);
  write(2, 0.1);
  folder_.write("run/step-2/manifest.json", "{");
  EXPECT_TRUE(is_known_damaged(folder_ / "run/step-2"));
  Retained retained(folder_ / "run");
  write(3, 0.3);
  Snapshot snapshot;
  snapshot.step = 3;
  retained.note_saved(snapshot);
  retained.prune(run_, {.keep_last = 2, .keep_best = false}, snapshot);
  EXPECT_THAT(steps_in(folder_ / "run"), ElementsAre(1, 3));
}

TEST_F(RetainedTest, AnythingInThePlaceOfANoteDoesNotCount) {
  write(1, 0.2);
  std::filesystem::create_directory(folder_ / "run/step-1/verification");
  EXPECT_FALSE(is_known_damaged(folder_ / "run/step-1"));
  Retained retained(folder_ / "run");
  retained.note_damaged(1);  // is not noted, and counts here
  EXPECT_FALSE(is_known_damaged(folder_ / "run/step-1"));
  EXPECT_THAT(save(retained, 2, 0.3), ElementsAre(2));
}

TEST_F(RetainedTest, WhereNothingIsReadBackNumbersAndMetricsDecide) {
  write(1, 0.5);
  Retained retained(folder_ / "run");
  retained.note_whole(1);
  EXPECT_THAT(save(retained, 2, 0.1, false), ElementsAre(2));
  EXPECT_THAT(save(retained, 3, 0.2, false), ElementsAre(2, 3));
}

/// A disk from which nothing of one checkpoint can be read.
const char* away = "";
ssize_t read_unless_away(int file, void* data, std::size_t size, off_t offset) {
  const auto path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(file));
  const bool is_away = path.parent_path().filename() == away;
  if (is_away) errno = EIO;
  return is_away ? -1 : ::pread(file, data, size, offset);
}

TEST_F(RetainedTest, ADamagedOneThatWasAwayAtTheStartGoesOnceItIsBack) {
  write(1, 0.1);
  write(2, 0.2);
  Retained(folder_ / "run").note_damaged(1);
  Retained(folder_ / "run").note_whole(2);
  io::file_calls.pread = read_unless_away;
  away = "step-1";
  Retained retained(folder_ / "run");
  EXPECT_THAT(save(retained, 3, 0.3), ElementsAre(1, 2, 3));
  away = "";
  EXPECT_THAT(save(retained, 4, 0.4), ElementsAre(2, 4));
}

TEST_F(RetainedTest, AManifestThatCannotBeReadKeepsNothingFromBeingPruned) {
  const testing::TemporaryFolder other;
  for (const std::int64_t step : {1, 2, 3, 4}) write(step, 0.1);
  std::filesystem::copy(folder_ / "run", other / "run", std::filesystem::copy_options::recursive);
  write_latest(other / "run", "step-4");
  io::file_calls.pread = read_unless_away;
  away = "step-1";
  prune(other / "run", 2, /*keep_best=*/false);
  EXPECT_THAT(steps_in(other / "run"), ElementsAre(3, 4));
}

}  // namespace
}  // namespace lockstep::checkpoint
