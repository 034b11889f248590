// The examples on GPUs, one a rank.

#include <map>
#include <sstream>

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

TEST_F(ExamplesOnGpus, TrainGptWaitsForTheGpuOnlyWhereItReadsItsLossLate) {
  const auto waits_in = [](int steps) {
    const auto result =
        run_command("LOCKSTEP_SIM_HOST_WAITS=1 " +
                        tiny_gpt("--device cuda --micro-batch 2 --steps " + std::to_string(steps)),
                    200);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return result.output;
  };
  const auto places = [](const std::string& output) {
    std::map<std::string, int> counts;
    std::istringstream lines(output);
    for (std::string line; std::getline(lines, line);)
      if (const auto at = line.find(" x cuda"); at != std::string::npos)
        counts[line.substr(at)] += std::stoi(line);
    return counts;
  };
  const std::string output = waits_in(8);
  if (output.find("==== simulated GPU") == std::string::npos)
    GTEST_SKIP() << "only the simulated GPU counts waits";
  auto few = places(output), many = places(waits_in(12));
  std::erase_if(many, [&](const auto& each) { return few[each.first] == each.second; });
  for (const auto& [place, count] : many) EXPECT_THAT(place, HasSubstr("HostCopy::wait"));
  EXPECT_EQ(many.size(), 1u);
}

TEST_F(ExamplesOnGpus, TrainGptCapturesItsStepsAndTakesTheSame) {
  const auto losses_with = [](const std::string& option) {
    const TemporaryFolder folder;
    const auto log_path = folder / "log.jsonl";
    const auto result =
        run_command(mpirun(ranks) + tiny_gpt("--device cuda --amp bf16 --micro-batch 1 --steps 8 "
                                             "--lr 1e-2 --log " +
                                             log_path.string() + option),
                    200);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_EQ(result.output.find("steps ran eagerly"), std::string::npos) << result.output;
    std::vector<double> losses;
    for (const auto& step : read_log(log_path)) losses.push_back(step.at("loss"));
    return losses;
  };
  EXPECT_EQ(losses_with(" --capture"), losses_with(""));
}

TEST_F(ExamplesOnGpus, TrainGptTakesTheStepsOfTheCpuInMixedPrecision) {
  const auto losses_on = [&](const std::string& device) {
    const TemporaryFolder folder;
    const auto log_path = folder / "log.jsonl";
    const auto result = run_command(
        mpirun(ranks) + tiny_gpt("--amp bf16 --micro-batch 1 --steps 12 --lr 1e-2 --device " +
                                 device + " --log " + log_path.string()),
        200);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    std::vector<double> losses;
    for (const auto& step : read_log(log_path)) losses.push_back(step.at("loss"));
    return losses;
  };
  const auto gpu = losses_on("cuda"), cpu = losses_on("cpu");
  ASSERT_EQ(gpu.size(), 12u);
  ASSERT_EQ(cpu.size(), 12u);
  for (std::size_t step = 0; step < gpu.size(); ++step)
    EXPECT_NEAR(gpu[step], cpu[step], 2e-2) << "step " << step;
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
