#include <chrono>
#include <cstdint>
#include <thread>

#include <gtest/gtest.h>

#include "checkpoint/thread_job.hpp"
#include "lockstep/checkpoint/manager.hpp"
#include "support/temporary_folder.hpp"

// A run that loads an older checkpoint and makes the same steps again.

namespace lockstep {
namespace {

using testing::run_job, testing::TemporaryFolder;

/// Snapshots in memory each so many steps, and hardly a save by itself.
checkpoint::ManagerOptions with_snapshots(const TemporaryFolder& folder, std::int64_t every) {
  std::filesystem::create_directories(folder / "memory");
  return {.interval = checkpoint::SaveInterval::every_steps(1000),
          .snapshot_every = every,
          .snapshot_folder = folder / "memory"};
}

TEST(GoingBack, SavesByTheClockAgainThoughTheirStepsHaveBeen) {
  const TemporaryFolder folder;
  run_job(1, [&](const CommunicatorPtr& group) {
    checkpoint::Manager checkpoints(folder / "run", group,
                                    {.interval = checkpoint::SaveInterval::every_seconds(0.02)});
    double state = 1;
    checkpoints.add("state", state);
    checkpoints.save(1);
    ASSERT_TRUE(checkpoints.wait()) << checkpoints.error();
    for (std::int64_t step = 2; step < 100'000; step += 100) checkpoints.save_if_due(step);
    checkpoints.load(folder / "run" / "step-1");
    std::int64_t step = 2;
    while (step < 2000 && !checkpoints.save_if_due(step)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ++step;
    }
    EXPECT_LT(step, 2000);
  });
}

// Snapshots of steps before one that another branch has saved are the newer ones, and outlive the
// run, though that ends in good order.
TEST(GoingBack, StaysBehindWhatItHasGoneBackFrom) {
  for (const bool goes_on : {true, false}) {
    const TemporaryFolder folder;
    run_job(1, [&](const CommunicatorPtr& group) {
      const checkpoint::ManagerOptions options = with_snapshots(folder, 1);
      double state = 0;
      {
        checkpoint::Manager checkpoints(folder / "run", group, options);
        checkpoints.add("state", state);
        for (std::int64_t step = 1; step <= 8; ++step) {
          ++state;
          if (step % 4 == 0)
            checkpoints.save(step);
          else
            checkpoints.save_if_due(step);
        }
        ASSERT_TRUE(checkpoints.wait()) << checkpoints.error();
        checkpoints.load(folder / "run" / "step-4");  // maybe only to look at it
        for (std::int64_t step = 5; goes_on && step <= 7; ++step) {
          state += 100;
          checkpoints.save_if_due(step);
        }
      }
      checkpoint::Manager checkpoints(folder / "run", group, options);
      checkpoints.add("state", state);
      EXPECT_EQ(checkpoints.load_newest(), goes_on ? 7 : 8);
      EXPECT_EQ(state, goes_on ? 304 : 8);
    });
  }
}

TEST(GoingBack, LeavesNothingInMemoryWhereARunEndsByALoad) {
  const TemporaryFolder folder;
  run_job(1, [&](const CommunicatorPtr& group) {
    checkpoint::Manager checkpoints(folder / "run", group, with_snapshots(folder, 1));
    double state = 0;
    checkpoints.add("state", state);
    for (std::int64_t step = 1; step <= 9; ++step)
      if (!checkpoints.save_if_due(step) && step % 4 == 0) checkpoints.save(step);
    ASSERT_TRUE(checkpoints.wait()) << checkpoints.error();
    checkpoints.load(folder / "run" / "step-4");  // as the best one, to be evaluated
  });
  for (const auto& left : std::filesystem::recursive_directory_iterator(folder / "memory"))
    EXPECT_FALSE(left.is_regular_file()) << left.path();
}

TEST(GoingBack, LeavesTheNewestToASaveThatComesFirst) {
  const TemporaryFolder folder;
  run_job(1, [&](const CommunicatorPtr& group) {
    double state = 0;
    {
      checkpoint::Manager checkpoints(folder / "run", group, with_snapshots(folder, 10));
      checkpoints.add("state", state);
      for (const std::int64_t step : {4, 8}) checkpoints.save(step);
      ASSERT_TRUE(checkpoints.wait()) << checkpoints.error();
      checkpoints.load(folder / "run" / "step-4");
      checkpoints.save(5);
      checkpoints.save_if_due(10);
    }
    std::filesystem::remove_all(folder / "memory");
    checkpoint::Manager checkpoints(folder / "run", group);
    checkpoints.add("state", state);
    EXPECT_EQ(checkpoints.load_newest(), 5);
  });
}

TEST(GoingBack, TakesSnapshotsInMemoryOfTheSameStepsAgain) {
  const TemporaryFolder folder;
  run_job(1, [&](const CommunicatorPtr& group) {
    const checkpoint::ManagerOptions options = with_snapshots(folder, 10);
    double state = 0;
    {
      checkpoint::Manager checkpoints(folder / "run", group, options);
      checkpoints.add("state", state);
      const auto train = [&](std::int64_t from, std::int64_t to) {
        for (std::int64_t step = from; step < to; ++step, ++state) checkpoints.save_if_due(step);
      };
      train(0, 5);
      checkpoints.save(5);
      train(5, 15);
      checkpoints.load(folder / "run" / "step-5");
      state += 100;
      train(5, 19);
    }
    checkpoint::Manager checkpoints(folder / "run", group, options);
    checkpoints.add("state", state);
    EXPECT_EQ(checkpoints.load_newest(), 10);
    EXPECT_EQ(state, 110);
  });
}

}  // namespace
}  // namespace lockstep
