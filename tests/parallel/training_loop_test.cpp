#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/thread_job.hpp"
#include "lockstep/checkpoint/folder.hpp"
#include "lockstep/comm/run_progress.hpp"
#include "lockstep/observe/log.hpp"
#include "lockstep/train/loop.hpp"
#include "parallel/small_training.hpp"

namespace lockstep::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::run_job;
using testing::TemporaryFolder;
using ::testing::ThrowsMessage;
namespace fs = std::filesystem;

using Steps = std::vector<std::int64_t>;

TEST(TrainLoop, EvaluatesEverySoManyStepsAndAtTheEndsOfEpochsAndOfTheRun) {
  run_job(1, [](const CommunicatorPtr& group) {
    Training training(group);
    Loop loop(group, {.steps = 13, .epochs = 3, .eval_every = 4});
    Steps steps, ends, told;
    loop.evaluate = [] { return 1.0; };
    loop.on_evaluation = [&](const Evaluation& each) {
      steps.push_back(each.step);
      EXPECT_EQ(told, Steps({each.step}));  // all steps before it
      if (each.ends_epoch) ends.push_back(each.step);
    };
    loop.on_step = [&](const StepReport& each) {
      told = {each.step};
      EXPECT_GT(each.loss, 0);
      EXPECT_GT(each.lr, 0);
    };
    EXPECT_EQ(loop.run(training.loader, training.step), 0);
    EXPECT_THAT(steps, ElementsAre(4, 5, 8, 10, 12, 13));
    EXPECT_THAT(ends, ElementsAre(5, 10));
    EXPECT_EQ(loop.steps(), 13);
  });
}

TEST(TrainLoop, RunsWithoutLoaderAndWithoutParts) {
  run_job(1, [](const CommunicatorPtr& group) {
    Loop loop(group, {.steps = 3});
    int calls = 0;
    EXPECT_EQ(loop.run([&] {
      ++calls;
      return Tensor();
    }),
              0);
    EXPECT_EQ(calls, 3);
  });
}

TEST(TrainLoop, RefusesRunsWithoutEndAndOptionsOutOfRange) {
  run_job(1, [](const CommunicatorPtr& group) {
    EXPECT_THAT([&] { Loop(group, {.steps = -1}); },
                ThrowsMessage<InvalidArgument>(HasSubstr("a loop of -1 steps")));
    EXPECT_THAT([&] { Loop(group, {}).run([] { return Tensor(); }); },
                ThrowsMessage<InvalidArgument>(HasSubstr("without end")));
    EXPECT_THAT([&] { Loop(group, {.epochs = 2}).run([] { return Tensor(); }); },
                ThrowsMessage<InvalidArgument>(HasSubstr("finds its own batches; give steps")));
    EXPECT_THAT(
        [&] {
          Loop(group, {.steps = 9, .early_stopping = {.patience = 1}}).run([] { return Tensor(); });
        },
        ThrowsMessage<InvalidArgument>(HasSubstr("set its `evaluate`")));
    EXPECT_THAT([&] { Loop(group, {.steps = 9, .resume_from = "step-3"}); },
                ThrowsMessage<InvalidArgument>(HasSubstr("without a checkpoint_dir")));
    EXPECT_THAT([&] { Loop(group, {.steps = 9}).start(0); },
                ThrowsMessage<InvalidArgument>(HasSubstr("over no batches")));
  });
}

TEST(TrainLoop, TellsAllRanksWhatOneDoesOtherwise) {
  run_job(2, [](const CommunicatorPtr& group) {
    const bool is_second = group->rank() == 1;
    const auto refusal = [&](const LoopOptions& options, bool evaluates, const char* words) {
      Loop loop(group, options);
      if (evaluates) loop.evaluate = [] { return 1.0; };
      EXPECT_THAT([&] { loop.run([] { return Tensor(); }); },
                  ThrowsMessage<InvalidArgument>(HasSubstr(words)));
    };
    refusal({.steps = is_second ? 4 : 3}, false, "steps is 3 on rank 0 but 4 on rank 1");
    refusal({.steps = 3}, is_second, "evaluations is false on rank 0 but true on rank 1");
  });
}

// Each of these had ranks wait for each other.
TEST(TrainLoop, TellsAllRanksWhichCheckpointsOneWantsOtherwise) {
  const TemporaryFolder folder;
  run_job(2, [&](const CommunicatorPtr& group) {
    const bool is_second = group->rank() == 1;
    const auto refusal = [&](const LoopOptions& options, const char* words) {
      EXPECT_THAT([&] { Loop(group, options); }, ThrowsMessage<InvalidArgument>(HasSubstr(words)));
    };
    const LoopOptions usual{.steps = 3, .checkpoint_dir = folder / "run"};
    LoopOptions other = usual;
    if (is_second) other.checkpoint_dir.clear();
    refusal(other, "whether there is a checkpoint_dir is true on rank 0 but false on rank 1");
    other = usual;
    other.resume = !is_second;
    refusal(other, "resume is true on rank 0 but false on rank 1");
    other = usual;
    if (is_second) other.resume_from = folder / "run/step-3";
    refusal(other, "whether there is a resume_from is false on rank 0 but true on rank 1");
    other = usual;
    other.checkpoints.keep_best = is_second;
    refusal(other, "keep_best is false on rank 0 but true on rank 1");
    Loop loop(group, usual);
    EXPECT_EQ(loop.run([] { return Tensor(); }), 0);
  });
}

TEST(TrainLoop, StopsOnAllRanksByTheMetricOfRankZero) {
  run_job(3, [](const CommunicatorPtr& group) {
    Training training(group);
    Loop loop(group, {.steps = 100, .eval_every = 2, .early_stopping = {.patience = 3}});
    loop.evaluate = [&] {  // best after 4 steps on rank 0; others improve, or never do
      const double steps = static_cast<double>(loop.steps());
      return group->rank() == 0 ? std::abs(steps - 4) : group->rank() == 1 ? -steps : steps;
    };
    double told = 0;
    loop.on_evaluation = [&](const Evaluation& each) { told = each.metric; };
    loop.run(training.loader, training.step);
    EXPECT_EQ(loop.steps(), 8);  // evaluations after 5 (an epoch), 6 and 8 were worse
    EXPECT_EQ(told, 4);
    EXPECT_EQ(loop.early_stopping().state().best_step, 4);
  });
}

TEST(TrainLoop, KeepsTheBestCheckpoint) {
  const TemporaryFolder folder;
  run_job(2, [&](const CommunicatorPtr& group) {
    Training training(group);
    Loop loop(group, {.steps = 12,
                      .eval_every = 3,
                      .checkpoint_dir = folder.path(),
                      .checkpoints = {.interval = checkpoint::SaveInterval::every_steps(4),
                                      .keep_last = 1,  // and the best, by default
                                      .read_back = false}});
    loop.add(training.step);
    loop.evaluate = [&] { return std::abs(static_cast<double>(loop.steps()) - 6); };
    loop.run(training.loader, training.step);
  });
  Steps steps;
  for (const auto& each : checkpoint::list(folder.path())) steps.push_back(each.step);
  EXPECT_THAT(steps, ElementsAre(6, 12));
  const auto best = checkpoint::best(folder.path());
  ASSERT_TRUE(best);
  EXPECT_EQ(best->step, 6);
  EXPECT_EQ(checkpoint::metric_of(best->path), 0);
  EXPECT_EQ(checkpoint::metric_of(folder / "step-12"), std::nullopt);
  EXPECT_FALSE(checkpoint::best(folder / "step-12"));
}

TEST(TrainLoop, KeepsItsBestCheckpointBesideABetterOneOfAnotherRun) {
  const TemporaryFolder folder;
  const auto run = [&](std::int64_t steps, bool resume, double best, std::int64_t best_step) {
    run_job(1, [&](const CommunicatorPtr& group) {
      Loop loop(group, {.steps = steps,
                        .eval_every = 2,
                        .checkpoint_dir = folder.path(),
                        .checkpoints = {.interval = checkpoint::SaveInterval::every_steps(50),
                                        .keep_last = 1,
                                        .keep_best = true,
                                        .read_back = false},
                        .resume = resume});
      loop.evaluate = [&] {
        return best + std::abs(static_cast<double>(loop.steps() - best_step));
      };
      loop.run([] { return Tensor(); });
    });
    Steps kept;
    for (const auto& each : checkpoint::list(folder.path())) kept.push_back(each.step);
    return kept;
  };
  EXPECT_THAT(run(7, true, 0, 6), ElementsAre(6, 7));
  EXPECT_THAT(run(9, false, 3, 2), ElementsAre(2, 6, 9));
  EXPECT_THAT(run(11, true, 3, 2), ElementsAre(2, 6, 11));
}

TEST(TrainLoop, ReturnsThatTheEndWasNotSavedAndLeavesWhatWasTrained) {
  const TemporaryFolder folder;
  const fs::path run = folder / "run";
  run_job(2, [&](const CommunicatorPtr& group) {
    Training training(group);
    Loop loop(group, {.steps = 7,
                      .checkpoint_dir = run,
                      .checkpoints = {.interval = checkpoint::SaveInterval::every_steps(3)}});
    loop.add(training.step);
    EXPECT_EQ(loop.run(training.loader,
                       [&](auto& batch) {
                         if (loop.steps() == 4 && group->rank() == 0) {
                           loop.checkpoints()->wait();
                           fs::rename(run, folder / "elsewhere");
                         }
                         return training.step(batch);
                       }),
              Loop::not_saved);
    EXPECT_EQ(loop.steps(), 7);
    EXPECT_EQ(loop.checkpoints()->failed_saves(), 2);  // of steps 6 and 7
  });
  EXPECT_EQ(checkpoint::newest(folder / "elsewhere")->step, 3);
}

TEST(TrainLoop, KeepsTheModelOfAStepThatNobodyAdded) {
  const TemporaryFolder folder;
  std::string weights;
  for (const std::int64_t steps : {3, 3})
    run_job(1, [&](const CommunicatorPtr& group) {
      Training training(group);
      Loop loop(group, {.steps = steps, .checkpoint_dir = folder.path()});
      EXPECT_EQ(loop.run(training.loader, training.step), 0);
      if (weights.empty()) weights = training.weights();
      EXPECT_TRUE(training.weights() == weights);
    });
  EXPECT_FALSE(testing::tensor_files(folder / "step-3").empty());
}

TEST(TrainLoop, WithCheckpointsRunsOnce) {
  const TemporaryFolder folder;
  run_job(2, [&](const CommunicatorPtr& group) {
    Training training(group);
    Loop loop(group, {.steps = 1, .checkpoint_dir = folder.path()});
    EXPECT_EQ(loop.run(training.loader, training.step), 0);
    EXPECT_THAT([&] { loop.run(training.loader, training.step); },
                ThrowsMessage<InvalidArgument>(HasSubstr("Make another loop")));
  });
}

TEST(TrainLoop, WarnsOfCheckpointsWithoutTensors) {
  const TemporaryFolder folder;
  static std::string log;
  log.clear();
  set_log_sink([](std::string_view line) { log += line; });
  run_job(2, [&](const CommunicatorPtr& group) {
    Training training(group);
    Loop loop(group, {.steps = 1, .checkpoint_dir = folder.path()});
    loop.run(training.loader, [&](auto& batch) { return training.step(batch); });
  });
  set_log_sink(nullptr);
  EXPECT_THAT(log, HasSubstr("keep no weights"));
}

/// What is logged of steps whose losses, from 1 on, are given.
std::string log_of_losses(const std::vector<double>& losses) {
  static std::string log;
  log.clear();
  set_log_sink([](std::string_view line) { log += line; });
  run_job(2, [&](const CommunicatorPtr& group) {
    Loop loop(group, {.steps = static_cast<std::int64_t>(losses.size())});
    EXPECT_EQ(loop.run([&] {
      const double loss = losses[static_cast<std::size_t>(loop.steps())];
      return full({}, group->rank() == 1 ? loss : 1.0);
    }),
              0);
  });
  set_log_sink(nullptr);
  return log;
}

TEST(TrainLoop, WarnsOnceOfLossesThatAreNotFiniteAnyMore) {
  const double nan = std::nan("");
  std::vector<double> losses(30, nan);
  losses[0] = losses[1] = 1;
  const std::string log = log_of_losses(losses), words = "not been finite since step 3: it is nan";
  EXPECT_THAT(log, HasSubstr(words + " on rank 1"));
  EXPECT_EQ(log.find(words), log.rfind(words));
  EXPECT_THAT(log_of_losses({1, 1, infinity}), HasSubstr("since step 3: it is inf on rank 1"));
  EXPECT_THAT(log_of_losses({1, nan, nan, 1}), IsEmpty());  // as a GradScaler gets over
}

TEST(TrainLoop, EndsBeforeALossThatIsNotFiniteIsSaved) {
  for (const std::int64_t save_every : {1, 2}) {
    const TemporaryFolder folder;
    const LoopOptions options{
        .steps = 9,
        .terminate_on_nan = true,
        .checkpoint_dir = folder / "run",
        .checkpoints = {.interval = checkpoint::SaveInterval::every_steps(save_every),
                        .snapshot_every = save_every,
                        .snapshot_folder = folder.path()}};
    run_job(2, [&](const CommunicatorPtr& group) {
      Loop loop(group, options);
      EXPECT_EQ(loop.run([&] {
        return full({}, group->rank() == 1 && loop.steps() >= 4 ? std::nan("") : 1.0);
      }),
                Loop::not_finite);
      EXPECT_EQ(loop.steps(), 4 + save_every);
    });
    EXPECT_EQ(checkpoint::newest(folder / "run")->step, 4);
    run_job(2, [&](const CommunicatorPtr& group) {
      Loop loop(group, options);
      loop.start();
      EXPECT_EQ(loop.steps(), 4) << "a snapshot was taken of a later step";
    });
  }
}

/// The number of a page of a supervisor.
std::int64_t number_at(const fs::path& page, std::size_t offset) {
  std::int64_t number = 0;
  std::memcpy(&number, testing::read_file(page).data() + offset, sizeof number);
  return number;
}

// In a process of its own, as the page is looked for once.
TEST(TrainLoop, TellsASupervisorOfStepsEvaluationsAndTheEnd) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    const TemporaryFolder folder;
    const fs::path page = folder.write("page", "lockstep" + std::string(40, '\0'));
    ::setenv("LOCKSTEP_RUN_PROGRESS", page.c_str(), 1);
    run_job(1, [&](const CommunicatorPtr& group) {
      Loop loop(group, {.steps = 4, .eval_every = 2, .checkpoint_dir = folder / "run"});
      loop.evaluate = [&] {
        EXPECT_EQ(number_at(page, 8), loop.steps() - 1);
        EXPECT_EQ(number_at(page, 32), 1);
        return 1.0;
      };
      loop.run([&] {
        EXPECT_EQ(number_at(page, 32), 0);
        return Tensor();
      });
    });
    EXPECT_EQ(number_at(page, 32), 1);
    comm::note_progress(9);  // as a loop of one's own
    EXPECT_EQ(number_at(page, 8), 9);
    const comm::LongWork evaluation;
    EXPECT_EQ(number_at(page, 32), 2);
    std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "");
}

TEST(TrainLoop, WarnsOfAStepThatIsNotAmongItsStates) {
  const TemporaryFolder folder;
  for (const bool is_added : {false, true}) {
    ::testing::internal::CaptureStderr();
    run_job(2, [&](const CommunicatorPtr& group) {
      Training training(group);
      const auto teacher = make_net();
      nn::Module& state = *teacher;
      Loop loop(group, {.steps = 2, .checkpoint_dir = folder / (is_added ? "a" : "b")});
      loop.add("teacher", state);
      if (is_added) loop.add(training.step);
      loop.run(training.loader, training.step);
    });
    const std::string text = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(text.find("keep no \"model\"") == text.npos, is_added) << text;
  }
}

}  // namespace
}  // namespace lockstep::train
