// Training runs of a ResNet.

#include "examples/resnet_job.hpp"
#include "lockstep/io/safetensors.hpp"

namespace examples::testing {
namespace {

namespace ls = lockstep;
using ::testing::HasSubstr;

double last_accuracy(const CommandResult& result) {
  const std::string words = "test accuracy ";
  const auto at = result.output.rfind(words);
  EXPECT_NE(at, std::string::npos) << result.output;
  return at == std::string::npos ? 0.0 : std::stod(result.output.substr(at + words.size()));
}

TEST(TrainResnet, LearnsDrawnImagesWithLarsAndSavesItsAverageMpi) {
  const TemporaryFolder folder;
  const auto saved = folder / "made/model.safetensors", log_path = folder / "log.jsonl";
  const auto snapshot = folder / "memory.json";
  const auto result = run_command(
      mpirun(2) + tiny_resnet("--optimizer lars --lr 5 --ema 0.9 --epochs 3 --amp bf16 --save " +
                              saved.string() + " --log " + log_path.string() +
                              " --memory-snapshot " + snapshot.string()),
      240);
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("640 images, products in bf16, 2 rank(s) on cpu"));
  EXPECT_GT(last_accuracy(result), 40.0) << result.output;
  const auto log = read_log(log_path);
  ASSERT_EQ(log.size(), 120u);
  EXPECT_LT(log.front().at("lr"), log[10].at("lr"));  // warm-up, then down
  EXPECT_LT(log.back().at("lr"), log[10].at("lr"));
  const auto file = ls::io::SafetensorsFile::open(saved);
  EXPECT_EQ(file.tensor("conv1.weight").shape(), (ls::Shape{8, 1, 7, 7}));
  EXPECT_EQ(file.tensor("layer4.1.bn2.running_var").numel(), 64);
  EXPECT_GT(nlohmann::json::parse(std::ifstream(snapshot)).at("device_traces").at(0).size(), 100u);
}

TEST(TrainResnet, TakesTheSameStepsWithAnyNumberOfWorkers) {
  const auto losses = [](const std::string& workers) {
    const TemporaryFolder folder;
    const auto log_path = folder / "log.jsonl";
    const auto result =
        run_command(tiny_resnet("--steps 4 --workers " + workers + " --log " + log_path.string()));
    EXPECT_EQ(result.exit_code, 0) << result.output;
    std::vector<double> all;
    for (const auto& step : read_log(log_path)) all.push_back(step.at("loss"));
    return all;
  };
  EXPECT_EQ(losses("0"), losses("3"));
}

}  // namespace
}  // namespace examples::testing
