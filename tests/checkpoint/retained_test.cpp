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
                                 bool read_back = true) const {
    write(step, metric);
    Snapshot snapshot;
    snapshot.step = step;
    snapshot.metric = metric;
    retained.note_saved(snapshot);
    retained.prune(run_, {.keep_last = 1, .keep_best = true, .read_back = read_back}, snapshot);
    return steps_in(folder_ / "run");
  }

  const testing::TemporaryFolder folder_;
  const RunFolder run_{folder_ / "run", 0};
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

TEST_F(RetainedTest, WhereNothingIsReadBackNumbersAndMetricsDecide) {
  write(1, 0.5);
  Retained retained(folder_ / "run");
  retained.note_whole(1);
  EXPECT_THAT(save(retained, 2, 0.1, false), ElementsAre(2));
  EXPECT_THAT(save(retained, 3, 0.2, false), ElementsAre(2, 3));
}

}  // namespace
}  // namespace lockstep::checkpoint
