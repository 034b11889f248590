// What jobs answer whose ranks were given different options.

#include "examples/jobs.hpp"

namespace examples::testing {
namespace {

using ::testing::HasSubstr;

constexpr const char* small = " --layers 1 --channels 32 --context 32 --sample 0 ";

/// A job of two ranks of one program, each with options of its own.
CommandResult job(const std::string& program, const std::string& first, const std::string& second) {
  return run_command(mpirun(1) + command(program, first) + " : -np 1 " + command(program, second));
}

CommandResult gpt_job(const std::string& first, const std::string& second) {
  const std::string common = small + std::string("--data " LOCKSTEP_TEXT " ");
  return job("train_gpt", common + first, common + second);
}

void expect_refused_job(const CommandResult& result, const std::string& words) {
  EXPECT_EQ(result.exit_code, 2) << result.output;
  EXPECT_LT(result.seconds, 10 * lockstep::testing::timeout_multiplier);
  EXPECT_EQ(occurrences(result.output, words), 1u) << "wanted: " << words << "\n" << result.output;
}

struct Difference {
  const char *first, *second, *words;
};
std::ostream& operator<<(std::ostream& out, const Difference& each) { return out << each.words; }

class OptionsThatDifferMpi : public ::testing::TestWithParam<Difference> {};

TEST_P(OptionsThatDifferMpi, AreRefusedOnceWithBothValuesAndRanks) {
  const auto [first, second, words] = GetParam();
  expect_refused_job(gpt_job(first, second), words);
}
INSTANTIATE_TEST_SUITE_P(
    TrainGpt, OptionsThatDifferMpi,
    ::testing::Values(
        Difference{"--lr 1", "--lr 2", "--lr is 1 on rank 0 but 2 on rank 1"},
        Difference{"--lr 0.5", "", "--lr is 0.5 on rank 0 but 0.003 on rank 1"},
        Difference{"--steps 3", "--steps 4", "--steps is 3 on rank 0 but 4 on rank 1"},
        Difference{"", "--global-batch 6", "--global-batch is 16 on rank 0 but 6 on rank 1"},
        Difference{"--dtype f64", "--dtype f32", "--dtype is f64 on rank 0 but f32 on rank 1"},
        Difference{"--seed 18446744073709551615", "--seed 18446744073709551614",
                   "--seed is 18446744073709551615 on rank 0 but 18446744073709551614 on rank 1"},
        Difference{"", "--betas 0.9,0.99", "--betas is 0.9,0.95 on rank 0 but 0.9,0.99 on rank 1"},
        Difference{"", "--deterministic", "--deterministic is off on rank 0 but on on rank 1"},
        Difference{"", "--plan measured", "--plan is pytorch on rank 0 but measured on rank 1"},
        Difference{"", "--bucket-mb 1", "--bucket-mb is 25 on rank 0 but 1 on rank 1"},
        Difference{"--zero 2", "--zero 3", "--zero is 2 on rank 0 but 3 on rank 1"},
        Difference{"--compress bf16", "--compress powersgd:2",
                   "--compress is bf16 on rank 0 but powersgd:2 on rank 1"},
        Difference{"--async local:2", "--async local:3",
                   "--async is local:2 on rank 0 but local:3 on rank 1"},
        Difference{"", "--async stale", "--async is none on rank 0 but stale on rank 1"},
        Difference{"--micro-batch 1 --reduction reproducible", "--micro-batch 1",
                   "--reduction is reproducible on rank 0 but default on rank 1"},
        Difference{"--check-divergence 2", "--check-divergence 3",
                   "--check-divergence is 2 on rank 0 but 3 on rank 1"},
        Difference{"", "--timeout 7", "--timeout is not given on rank 0 but 7 on rank 1"},
        Difference{"", "--trace trace.json",
                   "--trace is not given on rank 0 but trace.json on "
                   "rank 1"},
        Difference{"--comm mpi", "--comm shm",
                   "the communicator backend is mpi on rank 0 but shm on rank 1"},
        Difference{"--device cpu", "--device auto",
                   "the device is cpu on rank 0 but auto on rank 1"}));

TEST(SameOptions, ComparesWhatInputsHoldMpi) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "a.txt") << std::string(4000, 'a');
  std::ofstream(folder.path() / "b.txt") << std::string(4001, 'b');
  const auto data = [&](const char* name) {
    return small + std::string("--data ") + (folder.path() / name).string();
  };
  expect_refused_job(job("train_gpt", data("a.txt"), data("b.txt")),
                     "--data is 4000 bytes on rank 0 but 4001 bytes on rank 1");
}

TEST(SameOptions, RefusesOtherProgramsMpi) {
  const auto result = run_command(mpirun(1) + command("train_gpt", "") + ": -np 1 " +
                                  command("benchmark_allreduce", ""));
  EXPECT_EQ(result.exit_code, 2) << result.output;
  EXPECT_THAT(result.output, HasSubstr("start the same program on every rank"));
}

TEST(SameOptions, LetsRanksDifferInSpellingThreadsAndWhereTheyWriteMpi) {
  const TemporaryFolder folder;
  const std::string log = " --log " + (folder.path() / "log").string();
  const auto result = gpt_job("--steps 2 --lr 1e-3 --grad-clip 1.0 --device cpu --threads 1" + log,
                              "--steps 2 --lr 0.001 --device cpu --threads 2");
  EXPECT_EQ(result.exit_code, 0) << result.output;
}

TEST(SameOptions, SaysWhatOneRankAloneWasGivenMpi) {
  expect_refused_job(gpt_job("", "--nonsense"), "--nonsense");
  expect_refused_job(gpt_job("--lr nan", "--lr 1"), "--lr: must be a number from 0 on");
  expect_refused_job(gpt_job("", "--heads 3"), "--channels 32 is not a multiple of --heads 3");
}

TEST(SameOptions, HoldsForTheBenchmarkMpi) {
  expect_refused_job(job("benchmark_allreduce", "--max-bytes 1K", "--max-bytes 2K"),
                     "--max-bytes is 1024 on rank 0 but 2048 on rank 1");
}

}  // namespace
}  // namespace examples::testing
