// Training under --amp, beside the same run in f32.

#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "examples/jobs.hpp"
#include "support/golden.hpp"

namespace examples::testing {
namespace {

using ::testing::HasSubstr;

/// Mean loss of the last `steps` steps of a run.
double final_loss(const std::string& start, const std::string& program, std::ptrdiff_t steps) {
  const TemporaryFolder folder;
  const auto log_path = folder / "log.jsonl";
  const auto result = run_command(start + program + " --log " + log_path.string(), 240);
  EXPECT_EQ(result.exit_code, 0) << result.output;
  const auto log = read_log(log_path);
  if (std::ssize(log) < steps) return std::nan("");
  return std::accumulate(log.end() - steps, log.end(), 0.0,
                         [](double sum, const auto& step) {
                           return sum + step.at("loss").template get<double>();
                         }) /
         static_cast<double>(steps);
}

class MixedPrecisionMpi : public ::testing::TestWithParam<int> {
 protected:
  std::string start() const { return mpirun(GetParam()); }
};

TEST_P(MixedPrecisionMpi, OfTrainGptEndsWithTheLossOfF32) {
  const std::string steps = "--device cpu --steps 120 --lr 1e-2";
  const double expected = final_loss("", tiny_gpt(steps), 20);
  EXPECT_LT(expected, 4.0);
  const double loss = final_loss(start(), tiny_gpt(steps + " --amp bf16 --micro-batch 1"), 20);
  EXPECT_NEAR(loss, expected, 0.02 * expected);
  EXPECT_NE(loss, expected) << "computed in f32";
}

TEST_P(MixedPrecisionMpi, OfTrainMnistEndsWithTheLossOfF32) {
  const auto data = lockstep::testing::data_dir() / "mnist";
  if (!exists(data)) GTEST_SKIP() << "no MNIST in " << data << "; set LOCKSTEP_DATA_DIR";
  // Other dropout masks alone change a run's loss by 5 %: several runs are averaged.
  const auto mean_loss = [&](const std::string& amp) {
    double sum = 0;
    for (const char* seed : {"1", "2", "3", "4"})
      sum += final_loss(start(),
                        command("train_mnist", "--device cpu --steps 40 --data " + data.string() +
                                                   " --amp " + amp + " --seed " + seed),
                        30);
    return sum / 4;
  };
  const double expected = mean_loss("none");
  EXPECT_NEAR(mean_loss("bf16"), expected, 0.02 * expected);
}

INSTANTIATE_TEST_SUITE_P(Ranks, MixedPrecisionMpi, ::testing::Values(1, 2));

TEST(MixedPrecision, RefusesF16WithoutAScalerAndOtherWords) {
  const std::pair<std::string, std::string> refused[] = {{"f16", "f16 needs a gradient scaler"},
                                                         {"f8", "must be none or bf16, not f8"}};
  for (const auto& [given, reason] : refused) {
    const auto result = run_command(tiny_gpt("--amp " + given));
    EXPECT_EQ(result.exit_code, 2) << result.output;
    EXPECT_THAT(result.output, HasSubstr("--amp: " + reason));
  }
  const auto result = run_command(tiny_gpt("--amp bf16 --dtype f64"));
  EXPECT_EQ(result.exit_code, 2) << result.output;
  EXPECT_THAT(result.output, HasSubstr("--amp bf16 leaves f64 as it is"));
}

}  // namespace
}  // namespace examples::testing
