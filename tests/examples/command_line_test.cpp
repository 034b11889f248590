// What the examples answer to command lines, good and bad.

#include "examples/jobs.hpp"
#include "lockstep/runtime/info.hpp"

namespace examples::testing {
namespace {

using ::testing::HasSubstr;

class Example : public ::testing::TestWithParam<const char*> {
 protected:
  // Options without which the program would complain of their absence.
  std::string with_needed(const std::string& arguments) const {
    const bool needs_data = GetParam() == std::string("train_mnist");
    return command(GetParam(), (needs_data ? "--data . " : "") + arguments);
  }
};

void expect_usage_error(const CommandResult& result, const std::string& words) {
  EXPECT_EQ(result.exit_code, 2) << result.output;
  EXPECT_EQ(occurrences(result.output, "\n"), 1u) << result.output;
  EXPECT_THAT(result.output, HasSubstr(words));
}

TEST_P(Example, DescribesItsOptions) {
  const auto result = run_command(command(GetParam(), "--help"));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.output, HasSubstr("--help"));
  EXPECT_THAT(result.output, HasSubstr(GetParam()));
}

TEST_P(Example, RefusesUnknownOptionsInOneLine) {
  expect_usage_error(run_command(with_needed("--nonsense")), "--nonsense");
}

TEST_P(Example, RefusesUnknownOptionsOnceInAJobOfTwoMpi) {
  const auto result = run_command(mpirun(2) + with_needed("--nonsense"));
  EXPECT_EQ(result.exit_code, 2) << result.output;
  EXPECT_EQ(occurrences(result.output, "--nonsense"), 1u) << result.output;
  EXPECT_LT(result.seconds, 10 * lockstep::testing::timeout_multiplier);
}
INSTANTIATE_TEST_SUITE_P(Programs, Example,
                         ::testing::Values("train_gpt", "train_mnist", "train_resnet",
                                           "benchmark_allreduce", "lockstep_info"),
                         [](const auto& program) { return std::string(program.param); });

TEST(Examples, RefuseADeviceThatIsNotThere) {
  if (lockstep::cuda_device_count() > 0) GTEST_SKIP() << "this machine has a GPU";
  for (const char* program : {"train_gpt", "benchmark_allreduce", "train_mnist --data ."})
    expect_usage_error(run_command(command(program, "--device cuda")), "no usable GPU");
  expect_usage_error(run_command(command("train_gpt", "--device tpu")), "got 'tpu'");
}

TEST(Examples, RefuseADeviceThatIsNotThereOnceInAJobOfTwoMpi) {
  if (lockstep::cuda_device_count() > 0) GTEST_SKIP() << "this machine has a GPU";
  const auto result = run_command(mpirun(2) + command("train_gpt", "--device cuda"));
  EXPECT_EQ(result.exit_code, 2) << result.output;
  EXPECT_EQ(occurrences(result.output, "no usable GPU"), 1u) << result.output;
}

TEST(Examples, RunOnTheCpuWhereAutoFindsNoGpu) {
  if (lockstep::cuda_device_count() > 0) GTEST_SKIP() << "this machine has a GPU";
  const auto result = run_command(command("benchmark_allreduce", "--max-bytes 8 --device auto"));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.output, HasSubstr("1 ranks, backend self, device cpu"));
  EXPECT_THAT(run_command(tiny_gpt("--steps 1 --device auto")).output,
              HasSubstr("1 rank(s) on cpu"));
}

struct BadOption {
  const char* program;
  const char* arguments;
  const char* words;
};
std::ostream& operator<<(std::ostream& out, const BadOption& bad) {
  return out << bad.program << ' ' << bad.arguments;
}
class ImpossibleValue : public ::testing::TestWithParam<BadOption> {};

TEST_P(ImpossibleValue, IsRefusedInOneLine) {
  expect_usage_error(run_command(command(GetParam().program, GetParam().arguments)),
                     GetParam().words);
}
INSTANTIATE_TEST_SUITE_P(
    Options, ImpossibleValue,
    ::testing::Values(
        BadOption{"train_gpt", "--steps 0", "--steps: must be a whole number from 1"},
        BadOption{"train_gpt", "--steps 1.5", "not 1.5"},
        BadOption{"train_gpt", "--global-batch -4", "--global-batch"},
        BadOption{"train_gpt", "--lr nan", "--lr: must be a number from 0 on"},
        BadOption{"train_gpt", "--lr -1", "--lr: must be a number from 0 on"},
        BadOption{"train_gpt", "--lr much", "not much"},
        BadOption{"train_gpt", "--betas 0.9,1", "--betas: must be at least 0 and below 1"},
        BadOption{"train_gpt", "--betas 0.9", "--betas"},
        BadOption{"train_gpt", "--schedule linear", "--schedule"},
        BadOption{"train_gpt", "--dtype f8", "--dtype"},
        BadOption{"train_gpt", "--data no/such/file", "--data: File does not exist"},
        BadOption{"train_gpt", "--channels 30 --heads 4", "not a multiple of --heads 4"},
        BadOption{"train_gpt", "--save /dev/null/model", "--save: cannot write"},
        BadOption{"train_gpt", "--log /dev/null/log", "--log: cannot write"},
        BadOption{"train_gpt", "--plan best", "--plan: best not in {measured,pytorch}"},
        BadOption{"train_gpt", "--plan measured --zero 1", "--plan measured moves them"},
        BadOption{"train_gpt", "--bucket-mb 0", "--bucket-mb: must be a number above 0"},
        BadOption{"train_gpt", "--bucket-mb -1", "--bucket-mb: must be a number above 0"},
        BadOption{"train_gpt", "--bucket-mb big", "not big"},
        BadOption{"train_gpt", "--trace /dev/null/trace", "--trace: cannot write"},
        BadOption{"train_gpt", "--trace /tmp", "--trace: /tmp is a folder; name a file"},
        BadOption{"train_gpt", "--log logs/", "--log: logs/ is a folder; name a file"},
        BadOption{"train_gpt", "--save /dev/null", "--save: /dev/null is no folder"},
        BadOption{"train_gpt", "--trace trace.json --capture", "--trace has no times"},
        BadOption{"train_gpt", "--timeout 0", "--timeout: must be a number above 0"},
        BadOption{"train_gpt", "--timeout nan", "--timeout: must be a number above 0"},
        BadOption{"train_gpt", "--timeout soon", "not soon"},
        BadOption{"train_gpt", "--context 100000000 --data " LOCKSTEP_TEXT, "make no sequence"},
        BadOption{"train_gpt", "--init-from " LOCKSTEP_GOLDEN "/gpt2-tiny", "give --tokens"},
        BadOption{"train_gpt", "--init-from " LOCKSTEP_TEXT, "neither a folder with config.json"},
        BadOption{"train_gpt", "--patience 2", "give --eval-every, too"},
        BadOption{"train_gpt", "--eval-every 5 --async local:4", "give one of them"},
        BadOption{"train_resnet", "--eval-every -1", "--eval-every: must be a whole number from 0"},
        BadOption{"train_mnist", "", "--data is required"},
        BadOption{"train_mnist", "--data .", "lacks t10k-images-idx3-ubyte"},
        BadOption{"train_mnist", "--data . --epochs 0", "--epochs"},
        BadOption{"train_mnist", "--data . --lr inf", "--lr: must be a number from 0 on"},
        BadOption{"train_resnet", "--depth 19", "--depth"},
        BadOption{"train_resnet", "--data . --classes 3", "--data excludes --classes"},
        BadOption{"train_resnet", "--data .", "lacks t10k-images-idx3-ubyte"},
        BadOption{"benchmark_allreduce", "--min-bytes 0", "--min-bytes"},
        BadOption{"benchmark_allreduce", "--max-bytes lots", "--max-bytes"},
        BadOption{"benchmark_allreduce", "--factor 1", "--factor"},
        BadOption{"benchmark_allreduce", "--op median", "--op"}));

TEST(Examples, RefuseATimeoutOfTheEnvironmentThatIsNoPositiveNumber) {
  for (const std::string wrong : {"soon", "0", "-3"})
    expect_usage_error(
        run_command("LOCKSTEP_TIMEOUT=" + wrong + " " + tiny_gpt("--steps 1")),
        "LOCKSTEP_TIMEOUT must be a positive number of seconds, got '" + wrong + "'");
}

TEST(Examples, RefuseABatchThatLeavesARankWithoutWorkMpi) {
  const auto result = run_command(mpirun(2) + command("train_gpt", "--steps 2 --global-batch 1"));
  EXPECT_EQ(result.exit_code, 2) << result.output;
  EXPECT_EQ(occurrences(result.output, "leaves some of 2 ranks without a sequence"), 1u);
}

}  // namespace
}  // namespace examples::testing
