#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "checkpoint/thread_job.hpp"
#include "io/file_calls.hpp"
#include "lockstep/checkpoint/folder.hpp"
#include "lockstep/comm/run_progress.hpp"
#include "lockstep/comm/stop_request.hpp"
#include "lockstep/data/distributed_sampler.hpp"
#include "lockstep/observe/log.hpp"
#include "lockstep/train/early_stopping.hpp"
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

TEST(EarlyStopping, StopsAfterSoManyEvaluationsInARowWithoutImprovement) {
  EarlyStopping stopping({.patience = 2});
  const std::vector<double> metrics{3, 4, 2, 2, std::nan("")};
  std::vector<bool> best;
  for (std::size_t i = 0; i < metrics.size(); ++i) {
    EXPECT_FALSE(stopping.should_stop());
    best.push_back(stopping.update(static_cast<std::int64_t>(10 * i), metrics[i]));
  }
  EXPECT_THAT(best, ElementsAre(true, false, true, false, false));
  EXPECT_TRUE(stopping.should_stop());
  EXPECT_EQ(stopping.state(),
            (EarlyStopping::State{.best = 2, .best_step = 20, .bad_evaluations = 2}));
}

TEST(EarlyStopping, CountsImprovementsAboveMinDeltaAlone) {
  EarlyStopping stopping({.patience = 1, .min_delta = 0.5});
  EXPECT_TRUE(stopping.update(1, 3));
  EXPECT_FALSE(stopping.update(2, 2.5));
  EXPECT_TRUE(stopping.should_stop());
  EXPECT_TRUE(stopping.update(3, 2.4));
  EXPECT_FALSE(stopping.should_stop());
}

TEST(EarlyStopping, NeverStopsWithoutPatience) {
  EarlyStopping stopping;
  for (int step = 0; step < 1000; ++step) stopping.update(step, infinity);
  EXPECT_FALSE(stopping.should_stop());
  EXPECT_EQ(stopping.state().best_step, -1);
}

TEST(EarlyStopping, RefusesOptionsOutOfRange) {
  EXPECT_THAT([] { EarlyStopping({.patience = -1}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("a patience of -1")));
  EXPECT_THAT([] { EarlyStopping({.patience = 1, .min_delta = std::nan("")}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("a min_delta of nan")));
}

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

/// Samples with a random number each, by which they are known.
struct NoisySamples {
  std::int64_t size() const { return 12; }
  std::vector<double> fetch(std::span<const std::int64_t> indices,
                            const data::SampleRandom& random) const {
    std::vector<double> drawn;
    for (const std::int64_t index : indices) {
      Generator generator = random.of(index);
      drawn.push_back(static_cast<double>(index) + rand({}, {}, generator).item());
    }
    return drawn;
  }
};

/// All that the ranks draw in two epochs of 6 steps, in order. Ranks are seeded as
/// docs/long-runs.md has it. @param stop the step before which the first start ends; 0: none.
std::vector<double> samples_drawn(int ranks, std::int64_t stop) {
  const TemporaryFolder folder;
  std::vector<double> drawn;
  std::mutex mutex;
  for (const std::int64_t steps : {stop, std::int64_t{12}}) {
    if (steps == 0) continue;
    run_job(ranks, [&](const CommunicatorPtr& group) {
      manual_seed(1 + static_cast<std::uint64_t>(group->rank()));
      data::DataLoader loader(NoisySamples{}, data::RandomSampler(12, 1),
                              {.batch_size = 2, .rank = group->rank(), .world_size = ranks});
      Loop loop(group, {.steps = steps, .checkpoint_dir = folder / "run"});
      loop.run(loader, [&](const std::vector<double>& batch) {
        const std::lock_guard lock(mutex);
        for (const double each : batch) drawn.push_back(each);
        return Tensor();
      });
    });
  }
  std::ranges::sort(drawn);
  return drawn;
}

TEST(TrainLoop, HasDataSetsDrawTheSameOnAnyNumberOfRanksAndResumed) {
  const std::vector<double> whole = samples_drawn(1, 0);
  EXPECT_EQ(whole.size(), 24u);
  for (const int ranks : {1, 2})
    for (const std::int64_t stop : {0, 4, 7})
      EXPECT_EQ(samples_drawn(ranks, stop), whole) << ranks << " ranks, stopped at " << stop;
}

TEST(TrainLoop, RefusesLoadersOfOtherSeeds) {
  run_job(2, [](const CommunicatorPtr& group) {
    const auto rank = static_cast<std::uint64_t>(group->rank());
    data::DataLoader loader(
        NoisySamples{}, data::RandomSampler(12, 1),
        {.batch_size = 2, .rank = group->rank(), .world_size = 2, .seed = 5 + rank});
    Loop loop(group, {.epochs = 1});
    EXPECT_THAT([&] { loop.run(loader, [](auto&) { return Tensor(); }); },
                ThrowsMessage<InvalidArgument>(HasSubstr("seed is 5 on rank 0 but 6 on rank 1")));
  });
}

/// What the loop says where ranks' loaders are made by `make(group)`; empty where it runs.
template <class Make>
std::string refusal_of_loaders(int ranks, const Make& make) {
  std::vector<std::string> said(static_cast<std::size_t>(ranks));
  run_job(ranks, [&](const CommunicatorPtr& group) {
    auto loader = make(*group);
    Loop loop(group, {.steps = 1});
    try {
      loop.run(*loader, [](auto&) { return Tensor(); });
    } catch (const InvalidArgument& error) {
      said[static_cast<std::size_t>(group->rank())] = error.what();
    }
  });
  for (const std::string& each : said) EXPECT_EQ(each, said[0]);
  return said[0];
}

template <class S>
auto loader_of(S sampler, const data::DataLoaderOptions& options) {
  return std::make_unique<data::DataLoader<NoisySamples>>(NoisySamples{}, std::move(sampler),
                                                          options);
}

TEST(TrainLoop, RefusesRanksThatDoNotShareOutTheSameSamples) {
  using data::RandomSampler;
  EXPECT_THAT(refusal_of_loaders(2,
                                 [](comm::Communicator& group) {
                                   const auto seed = static_cast<std::uint64_t>(group.rank());
                                   return loader_of(
                                       RandomSampler(12, seed),
                                       {.batch_size = 4, .rank = group.rank(), .world_size = 2});
                                 }),
              ::testing::AllOf(HasSubstr("the loader's sampler's signature is "),
                               HasSubstr(" on rank 1; give the sampler the same seed")));
  EXPECT_THAT(refusal_of_loaders(2,
                                 [](comm::Communicator& group) {
                                   return loader_of(RandomSampler(12, 1),
                                                    {.batch_size = group.rank() == 0 ? 4 : 3,
                                                     .rank = group.rank(),
                                                     .world_size = 2});
                                 }),
              HasSubstr("batch_size is 4 on rank 0 but 3 on rank 1"));
  EXPECT_THAT(refusal_of_loaders(
                  2,
                  [](comm::Communicator& group) {
                    return loader_of(
                        RandomSampler(12, 1),
                        {.batch_size = 4, .rank = 0, .world_size = group.rank() == 0 ? 2 : 1});
                  }),
              HasSubstr("world_size is 2 on rank 0 but 1 on rank 1"));
  EXPECT_THAT(refusal_of_loaders(2,
                                 [](comm::Communicator&) {
                                   return loader_of(RandomSampler(12, 1),
                                                    {.batch_size = 4, .rank = 0, .world_size = 2});
                                 }),
              HasSubstr("rank 0 of 2 is handed out on 2 ranks, where it should be 1"));
  EXPECT_THAT(refusal_of_loaders(2,
                                 [](comm::Communicator& group) {
                                   return loader_of(
                                       data::DistributedSampler(
                                           12, {.rank = group.rank(), .world_size = 3}),
                                       {.batch_size = 2});
                                 }),
              HasSubstr("world_size is 3 on 2 ranks"));
}

TEST(TrainLoop, TakesSharesOfASamplerAndOfGroupsThatHaveAModelTogether) {
  EXPECT_EQ(refusal_of_loaders(2,
                               [](comm::Communicator& group) {
                                 return loader_of(data::DistributedSampler(
                                                      12, {.rank = group.rank(), .world_size = 2}),
                                                  {.batch_size = 2});
                               }),
            "");
  EXPECT_EQ(refusal_of_loaders(4,
                               [](comm::Communicator& group) {
                                 return loader_of(
                                     data::RandomSampler(12, 1),
                                     {.batch_size = 2, .rank = group.rank() / 2, .world_size = 2});
                               }),
            "");
}

TEST(TrainLoop, WarnsWhereEachRankTrainsOnAllSamplesButNotOnItsOwn) {
  static std::string log;
  set_log_sink([](std::string_view line) { log += line; });
  for (const bool is_own : {false, true}) {
    log.clear();
    const std::string refusal = refusal_of_loaders(2, [&](comm::Communicator& group) {
      const double first = is_own ? group.rank() : 0;
      return std::make_unique<data::DataLoader<data::TensorDataset>>(
          data::TensorDataset({full({4}, first)}), data::SequentialSampler(4),
          data::DataLoaderOptions{.batch_size = 2});
    });
    EXPECT_EQ(refusal, "");
    const std::string words = "each of 2 ranks trains on all samples";
    EXPECT_THAT(log, is_own ? IsEmpty() : ::testing::Matcher<std::string>(HasSubstr(words)));
  }
  set_log_sink(nullptr);
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
                                      .keep_last = 1,
                                      .keep_best = true,
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
    run_job(2, [&](const CommunicatorPtr& group) {
      Loop loop(group,
                {.steps = 9,
                 .terminate_on_nan = true,
                 .checkpoint_dir = folder.path(),
                 .checkpoints = {.interval = checkpoint::SaveInterval::every_steps(save_every)}});
      EXPECT_EQ(loop.run([&] {
        return full({}, group->rank() == 1 && loop.steps() >= 4 ? std::nan("") : 1.0);
      }),
                Loop::not_finite);
      EXPECT_EQ(loop.steps(), 4 + save_every);
    });
    EXPECT_EQ(checkpoint::newest(folder.path())->step, 4);
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
