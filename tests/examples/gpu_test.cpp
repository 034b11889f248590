// The examples on GPUs, one a rank.

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>

#include "examples/jobs.hpp"
#include "lockstep/runtime/info.hpp"
#include "support/golden.hpp"

namespace examples::testing {
namespace {

using ::testing::HasSubstr;

constexpr int ranks = 2;

class ExamplesOnGpus : public ::testing::Test {
 protected:
  void SetUp() override {
    const int gpus = lockstep::cuda_device_count();
    if (gpus < ranks) GTEST_SKIP() << ranks << " ranks but " << gpus << " GPUs";
  }
};

TEST_F(ExamplesOnGpus, TrainGptLearnsAndSavesWhatTheCpuCanUse) {
  const TemporaryFolder folder;
  const std::string saved = (folder / "model.safetensors").string();
  const auto log_path = folder / "log.jsonl";
  const auto trained = run_command(
      mpirun(ranks) + tiny_gpt("--device cuda --micro-batch 1 --steps 12 --lr 1e-2 --save " +
                               saved + " --log " + log_path.string()),
      200);
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  const auto log = read_log(log_path);
  ASSERT_EQ(log.size(), 12u);
  EXPECT_LT(log.back().at("loss").get<double>(), log.front().at("loss").get<double>() - 0.5);
  const auto continued =
      run_command(tiny_gpt("--device cpu --steps 1 --lr 0 --init-from " + saved), 100);
  ASSERT_EQ(continued.exit_code, 0) << continued.output;
  EXPECT_NEAR(held_out_loss(continued.output), held_out_loss(trained.output), 2e-3);
}

TEST_F(ExamplesOnGpus, CapturedTrainingGoesOnBitwiseFromACheckpoint) {
  const TemporaryFolder folder;
  const std::string run = (folder / "run").string(),
                    saved = (folder / "model.safetensors").string();
  const std::string program =
      mpirun(ranks) + tiny_gpt(
                          "--device cuda --micro-batch 1 --steps 9 --lr 1e-2 --capture --amp bf16 "
                          "--deterministic --save-every 5 --keep 9 --checkpoint-dir " +
                          run + " --save " + saved);
  const auto whole = run_command(program, 200);
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  const std::string expected = lockstep::testing::read_file(saved);
  std::filesystem::remove_all(run + "/step-9");
  std::filesystem::remove(run + "/latest");
  const auto again = run_command(program, 200);
  ASSERT_EQ(again.exit_code, 0) << again.output;
  EXPECT_THAT(again.output, HasSubstr("goes on after step 5"));
  EXPECT_EQ(lockstep::testing::read_file(saved) == expected, true) << again.output;
}

/// What the simulated GPUs of a training tell at its end, summed over the ranks.
struct Told {
  std::map<std::string, int> waits;  // by place
  int kernels = 0, graphs = 0;

  static std::optional<Told> of(int of_ranks, const std::string& training) {
    const TemporaryFolder folder;  // a file a rank, so that no line is torn
    const auto result =
        run_command("LOCKSTEP_SIM_HOST_WAITS=1 " + mpirun(of_ranks) + "--output-filename " +
                        (folder / "told").string() + " " + training,
                    200);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    std::optional<Told> told;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder / "told")) {
      if (!entry.is_regular_file()) continue;
      std::ifstream lines(entry.path());
      read(lines, told);
    }
    return told;
  }

 private:
  static void read(std::istream& lines, std::optional<Told>& told) {
    for (std::string line; std::getline(lines, line);) {
      const auto begin = line.find("==== simulated GPU"), place = line.find(" x cuda");
      int waits = 0, kernels = 0, graphs = 0;
      if (begin != std::string::npos &&
          std::sscanf(line.c_str() + begin,
                      "==== simulated GPU: %d host waits, %d kernels and %d graphs", &waits,
                      &kernels, &graphs) == 3) {
        if (!told) told.emplace();
        told->kernels += kernels;
        told->graphs += graphs;
      } else if (place != std::string::npos && told &&
                 std::sscanf(line.c_str(), " %d x", &waits) == 1) {
        told->waits[line.substr(place)] += waits;
      }
    }
  }
};

/// What four more steps of a GPT add.
std::optional<Told> told_of_four_steps(int of_ranks, const std::string& options) {
  const auto after = [&](int steps) {
    return Told::of(of_ranks, tiny_gpt("--device cuda --micro-batch 1 " + options + " --steps " +
                                       std::to_string(steps)));
  };
  auto few = after(8), many = after(12);
  if (!few || !many) return std::nullopt;
  std::erase_if(many->waits,
                [&](const auto& each) { return few->waits[each.first] == each.second; });
  many->kernels -= few->kernels;
  many->graphs -= few->graphs;
  return many;
}

/// The losses of a GPT's steps on several ranks, none of which falls back to eager ones.
std::vector<double> losses_on_gpus(const std::string& options) {
  const TemporaryFolder folder;
  const auto log_path = folder / "log.jsonl";
  const auto result =
      run_command(mpirun(ranks) + tiny_gpt(options + " --log " + log_path.string()), 200);
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(result.output.find("steps ran eagerly"), std::string::npos) << result.output;
  std::vector<double> losses;
  for (const auto& step : read_log(log_path)) losses.push_back(step.at("loss"));
  return losses;
}

TEST_F(ExamplesOnGpus, TrainGptWaitsForTheGpuOnlyWhereItReadsItsLossLate) {
  for (const int of_ranks : {1, ranks}) {
    const auto told = told_of_four_steps(of_ranks, "");
    if (!told) GTEST_SKIP() << "only the simulated GPU counts waits";
    for (const auto& [place, count] : told->waits) EXPECT_THAT(place, HasSubstr("HostCopy::wait"));
    EXPECT_EQ(told->waits.size(), 1u);
    EXPECT_EQ(told->graphs, 0);
  }
}

TEST_F(ExamplesOnGpus, TrainGptLaunchesACapturedStepAtOnceAndDoesNotWait) {
  for (const int of_ranks : {1, ranks}) {
    const auto told = told_of_four_steps(of_ranks, "--amp bf16 --capture");
    if (!told) GTEST_SKIP() << "only the simulated GPU counts launches";
    for (const auto& [place, count] : told->waits) EXPECT_THAT(place, HasSubstr("HostCopy::wait"));
    EXPECT_EQ(told->waits.size(), 1u);
    EXPECT_EQ(told->graphs, 4 * of_ranks);
    // Beside the graph: two inputs, the learning rates of the weights that decay and of those that
    // do not, and the two results that are read late.
    EXPECT_EQ(told->kernels, 4 * 6 * of_ranks);
  }
}

TEST_F(ExamplesOnGpus, TrainGptCapturesItsStepsAndTakesTheSame) {
  const std::string options =
      "--device cuda --amp bf16 --deterministic --micro-batch 1 --steps 8 --lr 1e-2";
  EXPECT_EQ(losses_on_gpus(options + " --capture"), losses_on_gpus(options));
}

TEST_F(ExamplesOnGpus, TrainGptTakesTheStepsOfTheCpuInMixedPrecision) {
  const std::string options = "--amp bf16 --micro-batch 1 --steps 12 --lr 1e-2 --device ";
  const auto gpu = losses_on_gpus(options + "cuda"), cpu = losses_on_gpus(options + "cpu");
  ASSERT_EQ(gpu.size(), 12u);
  ASSERT_EQ(cpu.size(), 12u);
  for (std::size_t step = 0; step < gpu.size(); ++step)
    EXPECT_NEAR(gpu[step], cpu[step], 2e-2) << "step " << step;
}

TEST_F(ExamplesOnGpus, TrainGptTakesTheSameStepsThroughTheHost) {
  const std::string options = "--device cuda --micro-batch 1 --steps 8 --lr 1e-2 --comm ";
  const auto staged = losses_on_gpus(options + "mpi"), direct = losses_on_gpus(options + "nccl");
  ASSERT_EQ(staged.size(), 8u);
  ASSERT_EQ(direct.size(), 8u);
  for (std::size_t step = 0; step < staged.size(); ++step)
    EXPECT_NEAR(staged[step], direct[step], 1e-4) << "step " << step;
}

TEST_F(ExamplesOnGpus, TrainMnistTakesTheStepsOfTheCpu) {
  const auto data = lockstep::testing::data_dir() / "mnist";
  if (!exists(data)) GTEST_SKIP() << "no MNIST in " << data << "; set LOCKSTEP_DATA_DIR";
  const auto losses_on = [&](const std::string& device) {
    const TemporaryFolder folder;
    const auto log_path = folder / "log.jsonl";
    const auto result = run_command(
        mpirun(ranks) + command("train_mnist", "--steps 20 --device " + device + " --data " +
                                                   data.string() + " --log " + log_path.string()),
        200);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    std::vector<double> losses;
    for (const auto& step : read_log(log_path)) losses.push_back(step.at("loss"));
    return losses;
  };
  const auto gpu = losses_on("cuda"), cpu = losses_on("cpu");
  ASSERT_EQ(gpu.size(), 20u);
  ASSERT_EQ(cpu.size(), 20u);
  for (std::size_t step = 0; step < gpu.size(); ++step)
    EXPECT_NEAR(gpu[step], cpu[step], 1e-2) << "step " << step;
}

TEST_F(ExamplesOnGpus, BenchmarkAllreduceFindsNoWrongElement) {
  for (const char* arguments : {"--dtype f32 --op sum", "--dtype bf16 --op average",
                                "--dtype i64 --op max", "--dtype f16 --op min"}) {
    const auto result =
        run_command(mpirun(ranks) + command("benchmark_allreduce",
                                            "--device cuda --max-bytes 64K --factor 8 "
                                            "--iterations 2 " +
                                                std::string(arguments)));
    ASSERT_EQ(result.exit_code, 0) << result.output;
    EXPECT_THAT(result.output, HasSubstr("# 2 ranks, backend nccl"));
  }
}

TEST_F(ExamplesOnGpus, LockstepInfoShowsThem) {
  const auto result = run_command(command("lockstep_info", "--json"));
  ASSERT_EQ(result.exit_code, 0) << result.output;
  const auto report = nlohmann::json::parse(result.output);
  EXPECT_GE(report.at("devices").at("GPUs").size(), static_cast<std::size_t>(ranks));
}

}  // namespace
}  // namespace examples::testing
