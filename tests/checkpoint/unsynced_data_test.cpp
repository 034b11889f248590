// Crashes of the machine, behind which only what was synced is there.

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "checkpoint/durable_state.hpp"
#include "checkpoint/thread_job.hpp"
#include "checkpoint/training_run.hpp"

namespace lockstep {
namespace {

using testing::DurableState, testing::FolderAfterCrash, testing::run_job, testing::TrainingRun,
    testing::with_all, testing::TemporaryFolder;
namespace fs = std::filesystem;

/// Weights, buffers and averages behind a step that can be gone on from.
struct SavedStep {
  std::int64_t step;
  std::string bytes;
};

/// A save, and what crashes leave of it.
struct Save {
  std::vector<SavedStep> goes_on_from;     ///< a crash while it is made
  std::vector<FolderAfterCrash> in_midst;  ///< none in `goes_on_from`: before the first save
  std::vector<FolderAfterCrash> behind;    ///< what `saved` was told of
};

/// What a run that is started in the folder goes on from, if anything.
std::optional<SavedStep> go_on_after_crash(const fs::path& folder) {
  std::optional<SavedStep> found;
  run_job(1, [&](const CommunicatorPtr& group) {
    TrainingRun run(group, folder, with_all(0, {.read_back = false}));
    if (const auto step = run.resume()) {
      found = SavedStep{*step, run.bytes()};
      const auto newest = checkpoint::newest(folder);
      ASSERT_TRUE(newest);
      EXPECT_EQ(newest->step, *step);
      EXPECT_TRUE(checkpoint::verify(newest->path).empty());
    }
  });
  return found;
}

bool is_one_of(const std::optional<SavedStep>& found, const std::vector<SavedStep>& expected) {
  if (!found) return expected.size() < 2;
  return std::ranges::any_of(expected, [&](const SavedStep& each) {
    return each.step == found->step && each.bytes == found->bytes;
  });
}

/// How names change, and whether the run trains on while it saves.
struct Way {
  bool exchanges, beside_training;
};

class UnsyncedData : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Names, UnsyncedData,
                         ::testing::Values(Way{true, false}, Way{false, false}, Way{true, true}),
                         [](const auto& way) {
                           return std::string(way.param.exchanges ? "WereExchanged"
                                                                  : "WereRenamedOneByOne") +
                                  (way.param.beside_training ? "BesideTraining" : "");
                         });

TEST_P(UnsyncedData, LostAtAnyCallLeavesTheNewestOrTheOneBefore) {
  const TemporaryFolder folder;
  set_log_sink([](std::string_view) {});
  std::vector<Save> saves;
  {
    DurableState durable(folder / "disk");
    if (!GetParam().exchanges) durable.refuse_exchanges();
    run_job(2, [&](const CommunicatorPtr& group) {
      TrainingRun run(
          group, folder / "disk/run",
          with_all(
              0, {.keep_last = 1, .asynchronous = GetParam().beside_training, .read_back = false}));
      std::vector<SavedStep> last;
      // The second deletes the first one, and the third has its name.
      for (const std::int64_t step : {1, 2, 2}) {
        run.train(run.steps() + 1);
        const SavedStep next{step, run.bytes()};
        run.checkpoints().save(step);
        if (GetParam().beside_training) run.train(run.steps() + 2);
        EXPECT_TRUE(run.checkpoints().wait()) << run.checkpoints().error();
        if (group->rank() == 0) {
          testing::wait_until_deleted(folder / "disk/run");
          saves.push_back({.goes_on_from = last,
                           .in_midst = durable.take_crashes(),
                           .behind = durable.crash_now()});
          saves.back().goes_on_from.push_back(next);
        }
        last = {next};
        group->barrier().synchronize();
      }
    });
  }
  io::file_calls.fsync = [](int) { return 0; };
  std::size_t crashes = 0;
  for (const Save& save : saves) {
    SCOPED_TRACE(detail::concat("step ", save.goes_on_from.back().step));
    for (const FolderAfterCrash& each : save.in_midst) {
      testing::write_folder(folder / "disk", each);
      ASSERT_TRUE(is_one_of(go_on_after_crash(folder / "disk/run"), save.goes_on_from)) << crashes;
      ++crashes;
    }
    for (const FolderAfterCrash& each : save.behind) {
      testing::write_folder(folder / "disk", each);
      const auto found = go_on_after_crash(folder / "disk/run");
      ASSERT_TRUE(found);
      ASSERT_TRUE(is_one_of(found, {save.goes_on_from.back()}));
    }
  }
  io::file_calls = {};
  EXPECT_GT(crashes, 60);
  std::cout << crashes << " crashes\n";
  set_log_sink(nullptr);
}

}  // namespace
}  // namespace lockstep
