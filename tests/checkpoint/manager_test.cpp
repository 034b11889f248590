#include <atomic>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/thread_job.hpp"
#include "checkpoint/training_run.hpp"
#include "comm/run_progress.hpp"
#include "io/file_calls.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep {
namespace {

using ::testing::HasSubstr, ::testing::UnorderedElementsAre;
using testing::read_file, testing::TrainingRun, testing::TrainingRunOptions, testing::with_all,
    testing::TemporaryFolder;
using testing::run_job, testing::steps_in, testing::tensor_files;
namespace fs = std::filesystem;

TEST(CheckpointManager, GoesOnBitwiseInTheMidstOfAnEpoch) {
  for (const int ranks : {1, 2, 3}) {
    const TemporaryFolder folder;
    std::vector<std::string> expected(3), found(3);
    std::vector<std::vector<double>> expected_losses(3), found_losses(3);
    std::vector<double> expected_sum(3), found_sum(3);
    run_job(ranks, [&](const CommunicatorPtr& group) {
      const auto rank = static_cast<std::size_t>(group->rank());
      {
        TrainingRun run(group, folder / "run", with_all());
        EXPECT_FALSE(run.resume());
        run.on_step = [&](std::int64_t step) {
          if (step == 11) run.checkpoints().save(step);
        };
        run.train(30);
        ASSERT_TRUE(run.checkpoints().wait()) << run.checkpoints().error();
        expected[rank] = run.bytes();
        expected_losses[rank] = {run.losses().begin() + 11, run.losses().end()};
        expected_sum[rank] = run.loss_sum();
      }
      TrainingRunOptions options = with_all();
      options.workers = 2;
      options.prefetch = 5;
      TrainingRun again(group, folder / "run", options);
      EXPECT_EQ(again.resume(), 11);
      again.train(30);
      found[rank] = again.bytes();
      found_losses[rank] = again.losses();
      found_sum[rank] = again.loss_sum();
    });
    EXPECT_EQ(found, expected) << ranks;
    EXPECT_EQ(found_losses, expected_losses) << ranks;
    EXPECT_EQ(found_sum[0], expected_sum[0]) << ranks;
  }
}

TEST(CheckpointManager, FilesAreTheSameForAnyNumberOfRanksZeroStageAndBucketSize) {
  const TemporaryFolder folder;
  run_job(2, [&](const CommunicatorPtr& group) {
    TrainingRun run(group, folder / "run", with_all(1, {.file_bytes = 300}));
    run.train(5);
    run.checkpoints().save(5);
    ASSERT_TRUE(run.checkpoints().wait()) << run.checkpoints().error();
  });
  auto expected = tensor_files(folder / "run/step-5");
  ASSERT_GT(expected.size(), 8u);  // several files of a state, and an index of each
  for (const int ranks : {1, 2, 3, 4})
    for (const int zero : {0, 1, 2, 3}) {
      const fs::path copy = folder / detail::concat(ranks, "-", zero);
      fs::create_directory(copy);
      fs::copy(folder / "run/step-5", copy / "step-5", fs::copy_options::recursive);
      run_job(ranks, [&](const CommunicatorPtr& group) {
        TrainingRunOptions options = with_all(zero, {.file_bytes = 300});
        if ((ranks + zero) % 2 == 0)
          options.replica.bucket_bytes = options.replica.first_bucket_bytes = 100;
        TrainingRun run(group, copy, options);
        ASSERT_EQ(run.resume(), 5);
        run.checkpoints().save(6);
        ASSERT_TRUE(run.checkpoints().wait()) << run.checkpoints().error();
      });
      EXPECT_THAT(checkpoint::verify(copy / "step-6"), ::testing::IsEmpty());
      auto wanted = expected;
      auto found = tensor_files(copy / "step-6");
      if (zero == 3)  // whose weights are never whole
        for (auto* files : {&wanted, &found})
          std::erase_if(*files, [](const auto& each) { return each.first.starts_with("average"); });
      EXPECT_EQ(found, wanted) << ranks << " ranks, stage " << zero;
    }
}

/// What the weights are after so many steps on a number of ranks, gone on from a copy of a run.
std::vector<double> go_on_from(const fs::path& from, int ranks, TrainingRunOptions options,
                               std::int64_t steps, std::int64_t global_batch) {
  const TemporaryFolder folder;
  fs::copy(from, folder / "run", fs::copy_options::recursive);
  options.batch = global_batch;
  std::vector<double> values;
  run_job(ranks, [&](const CommunicatorPtr& group) {
    TrainingRun run(group, folder / "run", options);
    EXPECT_TRUE(run.resume());
    run.train(steps);
    const std::vector<double> own = run.weights();
    if (group->rank() == 0) values = own;
  });
  return values;
}

/// Saves a run in the midst of its second epoch. @return the weights that it comes to.
std::vector<double> save_in_epoch(const fs::path& folder, TrainingRunOptions options,
                                  std::int64_t global_batch) {
  options.batch = global_batch;
  std::vector<double> values;
  run_job(2, [&](const CommunicatorPtr& group) {
    TrainingRun run(group, folder, options);
    run.on_step = [&](std::int64_t step) {
      if (step == 11) run.checkpoints().save(step);
    };
    run.train(30);
    const std::vector<double> own = run.weights();
    if (group->rank() == 0) values = own;
  });
  return values;
}

// As docs/long-runs.md shows it.
TEST(CheckpointManager, GivesItsWeightsToAProgramThatOnlyReadsThem) {
  const TemporaryFolder folder;
  std::vector<double> expected, loaded;
  run_job(2, [&](const CommunicatorPtr& group) {
    TrainingRun run(group, folder / "run", with_all(2, {.file_bytes = 300}));
    run.train(3);
    run.checkpoints().save(3);
    ASSERT_TRUE(run.checkpoints().wait()) << run.checkpoints().error();
    const std::vector<double> trained = run.weights();
    if (group->rank() == 0) expected = trained;
  });
  auto model = nn::make<testing::PerceptronTask>();
  const auto found = checkpoint::newest(folder / "run");
  ASSERT_TRUE(found);
  const auto weights = io::ShardedSafetensors::open(found->path);
  model->load_state_dict(weights.tensors());
  for (const auto& [name, tensor] : model->named_parameters())
    for (const double value : tensor.to(DType::f64).to_vector<double>()) loaded.push_back(value);
  EXPECT_EQ(loaded, expected);
  ASSERT_EQ(weights.tensors("hidden.").size(), 2u);
  EXPECT_EQ(weights.tensors("hidden.")[0].first, "bias");
  optim::WeightAverage average(model->named_parameters(), {.decay = 0.9});
  average.load_state_dict(io::ShardedSafetensors::open(found->path, "average").tensors());
  EXPECT_EQ(average.updates(), 3);
}

TEST(CheckpointManager, GoesOnOnOtherRanksAsOneProcessWould) {
  for (const int zero : {0, 1, 2, 3}) {
    const TemporaryFolder folder;
    TrainingRunOptions options = with_all(zero);
    options.dropout = false;
    const std::vector<double> expected = save_in_epoch(folder / "run", options, 12);
    for (const int ranks : {1, 2, 3, 4}) {
      options.workers = ranks - 1;
      options.prefetch = ranks % 2 ? 1 : 8;
      const std::vector<double> found = go_on_from(folder / "run", ranks, options, 30, 12);
      ASSERT_EQ(found.size(), expected.size());
      if (ranks == 2) {
        EXPECT_EQ(found, expected) << "stage " << zero;
      }
      for (std::size_t i = 0; i < found.size(); ++i)
        EXPECT_NEAR(found[i], expected[i], 5e-5) << ranks << " ranks, stage " << zero;
    }
  }
}

TEST(CheckpointManager, GoesOnOnOtherRanksBitwiseWhereAveragesAreReproducible) {
  const TemporaryFolder folder;
  TrainingRunOptions options = with_all();
  options.replica.reduction = GradientReduction::reproducible;
  options.replica.micro_batches = options.step.micro_batch = 4;
  const std::vector<double> expected = save_in_epoch(folder / "run", options, 16);
  for (const int ranks : {1, 2, 4})
    EXPECT_EQ(go_on_from(folder / "run", ranks, options, 30, 16), expected) << ranks;
}

TEST(CheckpointManager, GpuGoesOnBitwise) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  for (const int zero : {0, 3}) {
    const TemporaryFolder folder;
    const auto gpus = comm::make_thread_group(2, {}, cuda(0));
    std::vector<std::string> expected(2), found(2);
    for (const bool resumes : {false, true})
      run_job(2, [&](const CommunicatorPtr& group) {
        const auto rank = static_cast<std::size_t>(group->rank());
        TrainingRunOptions options = with_all(zero);
        options.workers = 1;
        options.device = cuda(0);
        options.host = group;
        TrainingRun run(gpus[rank], folder / "run", options);
        EXPECT_EQ(run.resume().has_value(), resumes);
        run.on_step = [&](std::int64_t step) {
          if (step == 5 && !resumes) run.checkpoints().save(step);
        };
        run.train(16);
        (resumes ? found : expected)[rank] = run.bytes();
      });
    EXPECT_EQ(found, expected) << "stage " << zero;
  }
}

TEST(CheckpointManager, EveryFlippedBitIsFoundAndNamed) {
  const TemporaryFolder folder;
  run_job(1, [&](const CommunicatorPtr& group) {
    auto model = nn::make<nn::Linear>(3, 2);
    std::int64_t step = 3;
    checkpoint::Manager checkpoints(folder / "run", group);
    checkpoints.add("model", model);
    checkpoints.add("step", step);
    checkpoints.save(1);
    ASSERT_TRUE(checkpoints.wait());
  });
  const fs::path saved = folder / "run/step-1";
  for (const auto& entry : fs::directory_iterator(saved)) {
    const std::string name = entry.path().filename();
    std::string bytes = read_file(entry.path());
    for (std::size_t byte = 0; byte < bytes.size(); ++byte)
      for (int bit = 0; bit < 8; ++bit) {
        const auto write = [&] {
          bytes[byte] = static_cast<char>(bytes[byte] ^ 1 << bit);
          std::fstream(entry.path(), std::ios::binary | std::ios::in | std::ios::out)
              .seekp(static_cast<std::streamoff>(byte))
              .put(bytes[byte]);
        };
        write();
        if (name == "manifest.json") {
          EXPECT_THROW(checkpoint::verify(saved), CorruptData);
        } else {
          const auto damage = checkpoint::verify(saved);
          ASSERT_EQ(damage.size(), 1u) << name << " " << byte;
          ASSERT_EQ(damage[0].file, name);
          ASSERT_EQ(damage[0].where, detail::concat("bit ", bit, " of byte ", byte));
          if (name == "model-00001-of-00001.safetensors" && byte >= 4096) {
            ASSERT_THAT(damage[0].tensors,
                        ::testing::ElementsAre(byte < 4096 + 8 ? "bias" : "weight"));
          }
        }
        write();
      }
  }
}

TEST(CheckpointManager, LoadsTheOneBeforeWhereTheNewestIsDamaged) {
  const TemporaryFolder folder;
  std::vector<std::string> lines;
  set_log_sink([&](std::string_view line) { lines.emplace_back(line); });
  const fs::path file = folder / "run/step-4/model-00001-of-00001.safetensors";
  run_job(2, [&](const CommunicatorPtr& group) {
    std::string weights;
    {
      TrainingRun run(group, folder / "run", with_all());
      for (const std::int64_t step : {2, 4}) {
        run.train(step);
        if (step == 2) weights = run.bytes();
        run.checkpoints().save(step);
      }
      ASSERT_TRUE(run.checkpoints().wait());
    }
    group->barrier().wait();
    if (group->rank() == 0) {
      std::string bytes = read_file(file);
      bytes[4096 + 20] = static_cast<char>(bytes[4096 + 20] ^ 1);
      folder.write(fs::relative(file, folder.path()).string(), bytes);
    }
    group->barrier().wait();
    TrainingRun again(group, folder / "run", with_all());
    EXPECT_EQ(again.resume(), 2);
    if (group->rank() == 0) {  // of the others buffers are their own until the next step
      EXPECT_EQ(again.bytes(), weights);
    }
    TrainingRun other(group, folder / "other", with_all());
    try {
      other.checkpoints().load(folder / "run/step-4");
      ADD_FAILURE() << "a damaged checkpoint was loaded";
    } catch (const CorruptData& error) {
      EXPECT_THAT(error.what(), HasSubstr("step-4: model-00001-of-00001.safetensors"));
      EXPECT_THAT(error.what(), HasSubstr("in bit 0 of byte 4116: tensor 'hidden.bias'"));
    }
  });
  set_log_sink(nullptr);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], HasSubstr("the checkpoint before is tried"));
}

TEST(CheckpointManager, KeepsTheLastTheBestAndMultiples) {
  const TemporaryFolder folder;
  run_job(1, [&](const CommunicatorPtr& group) {
    const TrainingRunOptions options = with_all(0, {.keep_last = 2,
                                                    .keep_every = 4,
                                                    .keep_best = true,
                                                    .asynchronous = false,
                                                    .read_back = false});
    {
      TrainingRun run(group, folder / "run", options);
      for (const auto& [step, metric] :
           std::map<std::int64_t, double>{{1, 3}, {2, 1}, {3, 2}, {4, 5}, {5, 4}, {6, 4}, {7, 4}})
        run.checkpoints().save(step, metric);
      EXPECT_THAT(steps_in(folder / "run"), UnorderedElementsAre(2, 4, 6, 7));
    }
    TrainingRun run(group, folder / "run", options);  // knows the best of before
    run.checkpoints().save(9, 3.0);
    EXPECT_THAT(steps_in(folder / "run"), UnorderedElementsAre(2, 4, 7, 9));
    run.checkpoints().save(3, 8.0);  // went back: what is behind goes first
    run.checkpoints().save(5, 8.0);
    EXPECT_THAT(steps_in(folder / "run"), UnorderedElementsAre(2, 3, 4, 5));
    EXPECT_EQ(run.resume(), 5);
  });
}

TEST(CheckpointManager, RefusesAFolderThatAnotherJobHas) {
  const TemporaryFolder folder;
  run_job(1, [&](const CommunicatorPtr& group) {
    const TrainingRun run(group, folder / "run", with_all());
    try {
      const checkpoint::Manager second(folder / "run", group, {.lock_seconds = 0});
      ADD_FAILURE() << "two jobs have one folder";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("belongs to a job that still runs"));
      EXPECT_THAT(error.what(), HasSubstr("generation 1"));
    }
  });
}

TEST(CheckpointManager, ALoadReadsEachByteOnceOverAllRanks) {
  const TemporaryFolder folder;
  static std::atomic<std::int64_t> read;
  for (const int zero : {0, 3})
    run_job(3, [&](const CommunicatorPtr& group) {
      const std::string name = detail::concat("run", zero);
      TrainingRun run(group, folder / name,
                      with_all(zero, {.read_back = false, .file_bytes = 1000}));
      run.train(3);
      run.checkpoints().save(3);
      ASSERT_TRUE(run.checkpoints().wait()) << run.checkpoints().error();
      TrainingRun other(group, folder / ("other-" + name), with_all(zero));
      if (group->rank() == 0) {
        read = 0;
        io::file_calls.pread = [](int file, void* data, std::size_t size, off_t offset) {
          const ssize_t count = ::pread(file, data, size, offset);
          read += count;
          return count;
        };
      }
      group->barrier().wait();
      other.checkpoints().load(folder / name / "step-3");
      group->barrier().wait();
      if (group->rank() != 0) return;
      io::file_calls = {};
      std::int64_t all = 0;
      for (const auto& entry : fs::directory_iterator(folder / name / "step-3"))
        all += static_cast<std::int64_t>(entry.file_size());
      EXPECT_EQ(read, all) << "stage " << zero;
    });
}

TEST(CheckpointManager, ALoadReadsAnEqualPartOnEachRank) {
  const TemporaryFolder folder;
  static std::mutex mutex;
  static std::map<int, double> read;  // by the file, which each rank has opened for itself
  read.clear();
  run_job(3, [&](const CommunicatorPtr& group) {
    auto model = nn::make<nn::Linear>(1600, 1700);
    checkpoint::Manager checkpoints(folder / "run", group,
                                    {.asynchronous = false, .read_back = false});
    checkpoints.add("model", model);
    checkpoints.save(1);
    ASSERT_EQ(checkpoints.error(), "");
    group->barrier().wait();
    if (group->rank() == 0)
      io::file_calls.pread = [](int file, void* data, std::size_t size, off_t offset) {
        const ssize_t count = ::pread(file, data, size, offset);
        const std::lock_guard lock(mutex);
        read[file] += static_cast<double>(count);
        return count;
      };
    group->barrier().wait();
    checkpoints.load(folder / "run/step-1");
    group->barrier().wait();
  });
  io::file_calls = {};
  ASSERT_GE(read.size(), 3u);  // rank 0 reads texts, too
  double sum = 0, largest = 0;
  for (const auto& [file, bytes] : read) {
    sum += bytes;
    largest = std::max(largest, bytes);
  }
  EXPECT_GT(sum, 10e6);
  EXPECT_LE(largest, 1.02 * sum / 3);
}

TEST(CheckpointManager, SaysWhatDoesNotFit) {
  const TemporaryFolder folder;
  run_job(2, [&](const CommunicatorPtr& group) {
    TrainingRun run(group, folder / "run", with_all());
    run.checkpoints().save(1);
    ASSERT_TRUE(run.checkpoints().wait());
    checkpoint::Manager other(folder / "other", group);
    auto model = nn::make<nn::Linear>(6, 17);
    other.add("model", model);
    try {
      other.load(folder / "run/step-1");
      ADD_FAILURE();
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("in 'model' of " + (folder / "run/step-1").string()));
    }
    checkpoint::Manager third(folder / "third", group);
    std::int64_t missing = 0;
    third.add("missing", missing);
    try {
      third.load(folder / "run/step-1");
      ADD_FAILURE();
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("has no 'missing'"));
    }
    EXPECT_THROW(third.load(folder / "nowhere"), CorruptData);
    EXPECT_THROW(third.add("missing", missing), InvalidArgument);
    EXPECT_THROW(third.add("../escape", missing), InvalidArgument);
    EXPECT_FALSE(third.load_newest());
  });
}

// An exception is told with the steps that its rank had made: by is_due, which hears of each.
TEST(CheckpointManager, TakesWhatIsSavedOrLoadedForNoStepThatWasMade) {
  const TemporaryFolder folder;
  run_job(1, [&](const CommunicatorPtr& group) {
    auto model = nn::make<nn::Linear>(2, 2);
    checkpoint::Manager checkpoints(folder / "run", group);
    checkpoints.add("model", model);
    checkpoints.is_due(41);
    checkpoints.save(40);
    EXPECT_TRUE(checkpoints.wait()) << checkpoints.error();
    EXPECT_EQ(checkpoints.load_newest(), 40);
    EXPECT_EQ(comm::last_step(), 41);
  });
}

}  // namespace
}  // namespace lockstep
