#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "checkpoint/thread_job.hpp"
#include "io/file_calls.hpp"
#include "lockstep/checkpoint/folder.hpp"
#include "lockstep/comm/stop_request.hpp"
#include "lockstep/observe/log.hpp"
#include "lockstep/tensor/factories.hpp"
#include "lockstep/train/loop.hpp"
#include "parallel/small_training.hpp"

// Loops that are stopped, and go on from their checkpoints.

namespace lockstep::train {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::run_job;
using testing::TemporaryFolder;
namespace fs = std::filesystem;

/// How a run went.
struct Outcome {
  int code = 0;
  std::int64_t steps = 0;
  std::vector<std::pair<std::int64_t, double>> evaluations;
  std::string weights;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

/// A run of at most 20 steps, which stops for lack of improvement. @param signal the step in which
/// the process gets SIGUSR1.
Outcome run_of(Loop& loop, Training& training, std::int64_t signal = 0) {
  Outcome outcome;
  loop.add(training.step);
  loop.evaluate = [&] {
    return training.loss() + std::pow(static_cast<double>(loop.steps() - 6), 2);
  };
  loop.on_evaluation = [&](const Evaluation& each) {
    outcome.evaluations.emplace_back(each.step, each.metric);
  };
  outcome.code = loop.run(training.loader, [&](auto& batch) {
    if (loop.steps() + 1 == signal) std::raise(SIGUSR1);
    return training.step(batch);
  });
  outcome.steps = loop.steps();
  outcome.weights = training.weights();
  return outcome;
}

LoopOptions options_in(const fs::path& folder, std::int64_t save_every) {
  return {.steps = 20,
          .eval_every = 3,
          .early_stopping = {.patience = 3},
          .checkpoint_dir = folder,
          .checkpoints = {.interval = checkpoint::SaveInterval::every_steps(save_every),
                          .keep_last = 100,
                          .keep_best = true}};
}

TEST(TrainLoop, GoesOnBitwiseFromAnyStepAndStopsAtTheSameOne) {
  const TemporaryFolder folder;
  std::vector<Outcome> whole(2);
  run_job(2, [&](const CommunicatorPtr& group) {
    Training training(group);
    Loop loop(group, options_in(folder / "whole", 1));
    whole[static_cast<std::size_t>(group->rank())] = run_of(loop, training);
  });
  ASSERT_GT(whole[0].steps, 6);
  ASSERT_LT(whole[0].steps, 20) << "it was to stop early";
  for (std::int64_t from = 1; from <= whole[0].steps; ++from)
    run_job(2, [&](const CommunicatorPtr& group) {
      Outcome expected = whole[static_cast<std::size_t>(group->rank())];
      std::erase_if(expected.evaluations, [&](const auto& each) { return each.first <= from; });
      Training training(group);
      LoopOptions options = options_in(folder / ("from-" + std::to_string(from)), 50);
      options.resume_from = folder / ("whole/step-" + std::to_string(from));
      Loop loop(group, options);
      std::int64_t resumed = 0;
      loop.on_resume = [&](std::int64_t steps) { resumed = steps; };
      const Outcome outcome = run_of(loop, training);
      EXPECT_EQ(resumed, from);
      EXPECT_EQ(outcome.steps, expected.steps) << from;
      EXPECT_EQ(outcome.evaluations, expected.evaluations) << from;
      EXPECT_TRUE(outcome.weights == expected.weights) << from;
      ASSERT_TRUE(loop.last_evaluation());
      EXPECT_EQ(loop.last_evaluation()->step, whole[0].evaluations.back().first);
      EXPECT_EQ(loop.last_evaluation()->metric, whole[0].evaluations.back().second);
    });
}

TEST(TrainLoop, WhatOnStepChangesIsKeptWithItsStep) {
  struct Resumed {
    std::int64_t step = 0, heard = 0;
    bool operator==(const Resumed&) const = default;
  };
  const TemporaryFolder folder;
  fs::create_directories(folder / "memory");
  // Up to a step, behind which it dies.
  const auto play = [&](std::int64_t last, std::int64_t save_every, std::int64_t snapshot_every) {
    Resumed resumed;
    run_job(2, [&](const CommunicatorPtr& group) {
      Loop loop(group,
                {.steps = 20,
                 .checkpoint_dir = folder / "run",
                 .checkpoints = {.interval = checkpoint::SaveInterval::every_steps(save_every),
                                 .snapshot_every = snapshot_every,
                                 .snapshot_folder = folder / "memory"}});
      std::int64_t heard = 0;
      loop.on_step = [&](const StepReport& step) { heard = step.step; };
      loop.on_resume = [&](std::int64_t step) {
        if (group->rank() == 0) resumed = {step, heard};
      };
      loop.add("heard", heard);
      loop.start();
      while (loop.steps() < last) loop.end_step({full({}, 1.0)});
    });
    return resumed;
  };
  EXPECT_EQ(play(5, 2, 0), (Resumed{0, 0}));
  EXPECT_EQ(play(7, 50, 1), (Resumed{4, 4})) << "of a checkpoint";
  EXPECT_EQ(play(9, 50, 1), (Resumed{7, 7})) << "of a snapshot in memory";
}

/// A run of two ranks up to a step, behind which it dies. @return the step from which it went on.
std::int64_t play_from(const fs::path& run, const fs::path& from, std::int64_t last,
                       bool resume = true) {
  std::int64_t resumed = 0;
  run_job(2, [&](const CommunicatorPtr& group) {
    Loop loop(group, {.steps = 20,
                      .checkpoint_dir = run,
                      .checkpoints = {.interval = checkpoint::SaveInterval::every_steps(1),
                                      .keep_last = 2},
                      .resume = resume,
                      .resume_from = from});
    loop.start();
    if (group->rank() == 0) resumed = loop.steps();
    while (loop.steps() < last) loop.end_step({full({}, 1.0)});
  });
  return resumed;
}

TEST(TrainLoop, StartedAgainIsBeyondWhatItWasResumedFrom) {
  const TemporaryFolder folder;
  const auto play = [&](const char* run, const char* from, std::int64_t last, bool resume = true) {
    return play_from(folder / run, *from == '\0' ? fs::path() : folder / from, last, resume);
  };
  play("a", "", 4);
  EXPECT_EQ(play("b", "a/step-3", 6), 3);
  EXPECT_EQ(play("b", "a/step-3", 8), 6);
  EXPECT_EQ(play("b", "", 9), 8);
  EXPECT_EQ(play("b", "a/step-3", 9), 9) << "though it was started otherwise between";
  EXPECT_EQ(play("b", "a/step-4", 5), 4) << "another one";
  EXPECT_EQ(play("b", "a/step-4", 6, false), 4);
  EXPECT_EQ(play("a", "a/step-3", 3), 3) << "back in its own folder";
  fs::remove_all(folder / "a");
  EXPECT_EQ(play("b", "a/step-4", 7), 6) << "though that is gone";
}

TEST(TrainLoop, StartedAgainIsBeyondWhateverThePathItWasResumedFrom) {
  const TemporaryFolder folder;
  for (const char* name : {"a%E9", "a\xe9", "a\xc3\xa9", "a \"1\""}) {
    SCOPED_TRACE(name);
    const fs::path from = folder / name / "step-3/";
    play_from(folder / name, {}, 4);
    const fs::path run = folder / ("of-" + std::string(name));
    EXPECT_EQ(play_from(run, from, 6), 3);
    EXPECT_EQ(play_from(run, from, 8), 6);
    fs::remove_all(folder / name);
    EXPECT_EQ(play_from(run, from, 9), 8);
  }
}

// By the same command line, whatever a link in it leads to by then.
TEST(TrainLoop, StartedAgainIsBeyondWhatALinkLedToAtItsFirstStart) {
  const TemporaryFolder folder;
  play_from(folder / "a", {}, 4);
  const fs::path link = folder / "link";
  fs::create_symlink(folder / "a/step-3", link);
  EXPECT_EQ(play_from(folder / "b", link, 6), 3);
  fs::remove(link);
  fs::create_symlink(folder / "a/step-4", link);
  EXPECT_EQ(play_from(folder / "b", link, 8), 6);
  EXPECT_EQ(play_from(folder / "b", folder / "a/step-3", 9), 8) << "the same by its own name";
}

TEST(TrainLoop, StartedAgainIsBeyondWhatItWasResumedFromThoughItsNewestCheckpointIsDamaged) {
  const TemporaryFolder folder;
  play_from(folder / "a", {}, 4);
  play_from(folder / "b", folder / "a/step-3", 10);
  for (const char* file : {"state.json", "manifest.json"}) {
    std::ofstream(folder / "b/step-10" / file, std::ios::app) << "x";
    EXPECT_EQ(play_from(folder / "b", folder / "a/step-3", 9), 9) << file;
  }
}

TEST(TrainLoop, StartedAgainDoesNotNeedWhatItWasResumedFrom) {
  const TemporaryFolder folder;
  play_from(folder / "a", {}, 4);
  play_from(folder / "b", folder / "a/step-3", 10);
  fs::remove_all(folder / "a");
  EXPECT_EQ(play_from(folder / "b", folder / "a/step-3", 11), 10);
  const fs::path elsewhere = fs::current_path();
  fs::current_path(folder.path());  // of which the first name is gone
  EXPECT_EQ(play_from("b", "a/step-3", 12), 11);
  fs::current_path(elsewhere);
  EXPECT_THROW(play_from(folder / "c", folder / "a/step-3", 3), CorruptData);
}

TEST(TrainLoop, StartedAgainGoesOnFromASnapshotInMemoryThoughNothingElseWasSaved) {
  const TemporaryFolder folder;
  fs::create_directories(folder / "memory");
  play_from(folder / "a", {}, 4);
  const auto play = [&](std::int64_t last) {
    std::int64_t resumed = 0;
    run_job(2, [&](const CommunicatorPtr& group) {
      Loop loop(group, {.steps = 20,
                        .checkpoint_dir = folder / "b",
                        .checkpoints = {.interval = checkpoint::SaveInterval::every_steps(50),
                                        .snapshot_every = 1,
                                        .snapshot_folder = folder / "memory"},
                        .resume_from = folder / "a/step-3"});
      loop.start();
      if (group->rank() == 0) resumed = loop.steps();
      while (loop.steps() < last) loop.end_step({full({}, 1.0)});
    });
    return resumed;
  };
  EXPECT_EQ(play(9), 3);
  EXPECT_EQ(play(12), 9);
}

TEST(TrainLoop, DoesNotBeginAnewWhereWhatItIsResumedFromCannotBeLookedAt) {
  const TemporaryFolder folder;
  fs::create_symlink("loop", folder / "loop");
  EXPECT_THROW(play_from(folder / "b", folder / "loop/step-3", 3), CorruptData);
}

TEST(TrainLoop, GoesOnBitwiseAfterASignalInAnyStep) {
  const char* const arguments[]{"program"};
  const auto play = [&](const fs::path& folder, std::int64_t signal) {
    Outcome outcome;
    const int code = Session::run(1, arguments,
                                  [&](Session& session) {
                                    Training training(session.world(), {.micro_batch = 3});
                                    Loop loop(session, options_in(folder, 50));
                                    outcome = run_of(loop, training, signal);
                                    return outcome.code;
                                  },
                                  {.device = "cpu", .threads = 1});
    EXPECT_EQ(code, outcome.code);
    return outcome;
  };
  const TemporaryFolder folder;
  const Outcome whole = play(folder / "whole", 0);
  ASSERT_EQ(whole.code, 0);
  for (std::int64_t signal = 1; signal <= whole.steps; ++signal) {
    const fs::path run = folder / std::to_string(signal);
    const Outcome stopped = play(run, signal);
    EXPECT_EQ(stopped.code, StopRequest::exit_code);
    EXPECT_EQ(stopped.steps, signal);
    Outcome rest = play(run, 0);
    rest.evaluations.insert(rest.evaluations.begin(), stopped.evaluations.begin(),
                            stopped.evaluations.end());
    EXPECT_TRUE(rest == whole) << signal;
    if (signal % 6 != 0) continue;
    // An evaluation that the stop left to the next start was made there, once for all.
    EXPECT_THAT(play(run, 0).evaluations, IsEmpty()) << signal;
  }
}

TEST(TrainLoop, CountsEpochsWhereBatchesHadAnotherSizeBefore) {
  const TemporaryFolder folder;
  const auto samples_of = [&](std::int64_t batch_size, std::int64_t steps) {
    std::int64_t seen = 0;
    run_job(1, [&](const CommunicatorPtr& group) {
      data::DataLoader<data::TensorDataset> loader(samples(), data::RandomSampler(22, 3),
                                                   {.batch_size = batch_size, .seed = 3});
      Loop loop(group, {.steps = steps, .epochs = 3, .checkpoint_dir = folder.path()});
      loop.run(loader, [&](const auto& batch) {
        seen += batch[0].size(0);
        return Tensor();
      });
      EXPECT_LE(loop.steps(), loop.all_steps());
    });
    return seen;
  };
  EXPECT_EQ(samples_of(4, 7), 22 + 4);
  EXPECT_EQ(samples_of(2, 7 + 5), 10);  // in the midst of the second epoch
  EXPECT_EQ(samples_of(2, 7 + 6), 2);
  EXPECT_EQ(samples_of(11, 0), 3 * 22 - (22 + 4 + 10 + 2));
}

TEST(TrainLoop, TakesMoreEpochsThanHaveANumberOfSteps) {
  run_job(1, [&](const CommunicatorPtr& group) {
    data::DataLoader<data::TensorDataset> loader(samples(), data::RandomSampler(22, 3),
                                                 {.batch_size = 4, .seed = 3});
    Loop loop(group, {.steps = 7, .epochs = std::numeric_limits<std::int64_t>::max() / 2});
    loop.run(loader, [](const auto&) { return Tensor(); });
    EXPECT_EQ(loop.steps(), 7);
  });
}

// Of 22 samples 20 are behind it, and batches of 8 that are whole: none is left.
TEST(TrainLoop, EndsAnEpochOfWhichLessThanABatchWasLeft) {
  const TemporaryFolder folder;
  std::vector<std::int64_t> evaluated;
  const auto steps_of = [&](std::int64_t batch_size, std::int64_t steps) {
    run_job(1, [&](const CommunicatorPtr& group) {
      data::DataLoader<data::TensorDataset> loader(
          samples(), data::RandomSampler(22, 3),
          {.batch_size = batch_size, .drop_last = true, .seed = 3});
      Loop loop(group, {.steps = steps, .epochs = 3, .checkpoint_dir = folder.path()});
      loop.evaluate = [] { return 1.0; };
      loop.on_evaluation = [&](const Evaluation& each) {
        if (each.ends_epoch) evaluated.push_back(each.step);
      };
      loop.run(loader, [](const auto&) { return Tensor(); });
      EXPECT_EQ(loop.steps(), steps > 0 ? steps : loop.all_steps());
    });
  };
  steps_of(4, 4);
  EXPECT_THAT(evaluated, IsEmpty());
  steps_of(8, 0);
  EXPECT_THAT(evaluated, ::testing::ElementsAre(4, 6, 8));
}

TEST(TrainLoop, MayFollowAnotherOneInASession) {
  const TemporaryFolder folder;
  const char* const arguments[]{"program"};
  const auto body = [&](Session& session) {
    for (const auto& [name, signal] : {std::pair{"first", 0}, std::pair{"second", 2}}) {
      Training training(session.world());
      Loop loop(session, {.steps = 5, .checkpoint_dir = folder / name});
      loop.add(training.step);
      EXPECT_EQ(loop.run(training.loader,
                         [&](auto& batch) {
                           if (loop.steps() + 1 == signal) std::raise(SIGUSR1);
                           return training.step(batch);
                         }),
                signal > 0 ? StopRequest::exit_code : 0);
      EXPECT_EQ(loop.steps(), signal > 0 ? signal : 5);
    }
    return StopRequest::exit_code;
  };
  EXPECT_EQ(Session::run(1, arguments, body, {.device = "cpu", .threads = 1}),
            StopRequest::exit_code);
}

// Of the time that is left a save that is under way takes some, and it tells what the next takes.
TEST(TrainLoop, ASaveThatIsUnderWayWhenTheRunIsStoppedCounts) {
  const TemporaryFolder folder;
  const char* const arguments[]{"program"};
  io::file_calls.fsync = [](int descriptor) {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    return ::fsync(descriptor);
  };
  ::setenv("LOCKSTEP_GRACE_TIME", "1", 1);
  const auto body = [&](Session& session) {
    Training training(session.world());
    Loop loop(session, {.steps = 5,
                        .checkpoint_dir = folder / "run",
                        .checkpoints = {.interval = checkpoint::SaveInterval::every_steps(1)}});
    loop.add(training.step);
    return loop.run(training.loader, [&](auto& batch) {
      if (loop.steps() == 1) std::raise(SIGUSR1);
      return training.step(batch);
    });
  };
  EXPECT_EQ(Session::run(1, arguments, body, {.device = "cpu", .threads = 1}),
            StopRequest::exit_code);
  ::unsetenv("LOCKSTEP_GRACE_TIME");
  io::file_calls = {};
  const auto newest = checkpoint::newest(folder / "run");
  ASSERT_TRUE(newest);
  EXPECT_EQ(newest->step, 1);
}

// The evaluation of the last step is in no checkpoint, those of steps before are there.
TEST(TrainLoop, ASaveForWhichNoTimeIsLeftNamesTheLastThatIsThere) {
  const TemporaryFolder folder;
  const char* const arguments[]{"program"};
  static std::string log;
  log.clear();
  set_log_sink([](std::string_view line) { log += line; });
  io::file_calls.fsync = [](int descriptor) {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    return ::fsync(descriptor);
  };
  ::setenv("LOCKSTEP_GRACE_TIME", "0.2", 1);
  const auto body = [&](Session& session) {
    Loop loop(session, {.steps = 9,
                        .eval_every = 2,
                        .checkpoint_dir = folder / "run",
                        .checkpoints = {.interval = checkpoint::SaveInterval::every_steps(3)}});
    loop.evaluate = [&] { return static_cast<double>(loop.steps()); };
    return loop.run([&] {
      if (loop.steps() == 4) std::raise(SIGUSR1);
      return Tensor();
    });
  };
  EXPECT_EQ(Session::run(1, arguments, body, {.device = "cpu", .threads = 1}),
            StopRequest::exit_code);
  ::unsetenv("LOCKSTEP_GRACE_TIME");
  io::file_calls = {};
  set_log_sink(nullptr);
  EXPECT_THAT(log, HasSubstr("more than is left: the one of step 3 is the last"));
}

}  // namespace
}  // namespace lockstep::train
