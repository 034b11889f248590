#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>

#include "checkpoint/contents.hpp"
#include "checkpoint/verification.hpp"
#include "examples/jobs.hpp"
#include "examples/resnet_job.hpp"
#include "lockstep/train/loop.hpp"

namespace examples::testing {
namespace {

using lockstep::testing::read_file;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

/// As if a run had ended behind a step.
void forget_behind(const fs::path& run, std::int64_t step) {
  for (const auto& entry : fs::directory_iterator(run)) {
    const std::string name = entry.path().filename();
    if (name == "latest" || (name.starts_with("step-") && std::stoll(name.substr(5)) > step))
      fs::remove_all(entry.path());
  }
}

/// Trains with checkpoints in a folder, loses all behind the step-th, and goes on: the weights are
/// those of the run that nothing happened to. Gives the outputs of both.
std::pair<std::string, std::string> go_on(const std::string& program, std::int64_t step,
                                          const TemporaryFolder& folder) {
  const fs::path run = folder / "run";
  const std::string saved = (folder / "weights.safetensors").string();
  const auto whole = run_command(
      program + " --checkpoint-dir " + run.string() + " --save-every 5 --keep 99 --save " + saved,
      100);
  EXPECT_EQ(whole.exit_code, 0) << whole.output;
  const std::string expected = read_file(saved);
  forget_behind(run, step);
  const auto again = run_command(
      program + " --checkpoint-dir " + run.string() + " --save-every 5 --save " + saved, 100);
  EXPECT_EQ(again.exit_code, 0) << again.output;
  EXPECT_THAT(again.output, HasSubstr("goes on after step " + std::to_string(step)));
  EXPECT_EQ(read_file(saved) == expected, true) << again.output;
  const auto verified = run_command(command("lockstep_checkpoint", "verify " + run.string()));
  EXPECT_EQ(verified.exit_code, 0) << verified.output;
  return {whole.output, again.output};
}

void expect_goes_on(const std::string& program, std::int64_t step) {
  const TemporaryFolder folder;
  go_on(program, step, folder);
}

TEST(Checkpoints, TrainGptGoesOnBitwise) {
  expect_goes_on(tiny_gpt("--steps 17 --ema 0.9 --amp f16 --micro-batch 2"), 10);
}

TEST(Checkpoints, TrainGptGoesOnBitwiseInCapturedStepsMpi) {
  expect_goes_on(mpirun(2) + tiny_gpt("--steps 12 --capture --amp bf16 --eval-every 4"), 5);
}

TEST(Checkpoints, TrainGptGoesOnBitwiseWithPackedDocumentsMpi) {
  expect_goes_on(mpirun(2) + tiny_gpt("--steps 12 --pack --micro-batch 1 --capture --eval-every 4"),
                 5);
}

TEST(Checkpoints, TrainGptGoesOnBitwiseFromFourToTwoToFourRanksMpi) {
  const TemporaryFolder folder;
  const fs::path run = folder / "run";
  const std::string saved = (folder / "weights.safetensors").string();
  std::string expected;
  for (const auto& [ranks, from] : {std::pair{4, 0}, {2, 4}, {4, 8}}) {
    if (from > 0) forget_behind(run, from);
    const auto result =
        run_command(mpirun(ranks) + tiny_gpt("--reduction reproducible --steps 12 --save-every 4 "
                                             "--keep 9 --save " +
                                             saved + " --checkpoint-dir " + run.string()),
                    100);
    ASSERT_EQ(result.exit_code, 0) << result.output;
    if (from > 0) {
      EXPECT_THAT(result.output, HasSubstr("goes on after step " + std::to_string(from)));
      EXPECT_EQ(read_file(saved) == expected, true) << result.output;
    }
    expected = read_file(saved);
  }
}

TEST(Checkpoints, TrainGptGoesOnBitwiseWithSharedOutParametersMpi) {
  for (const char* stage : {"1", "3"})
    expect_goes_on(mpirun(2) + tiny_gpt(std::string("--steps 12 --eval-every 4 --zero ") + stage),
                   10);
}

TEST(Checkpoints, TrainGptGoesOnBitwiseWithWhatEachRankHasOfItsOwnMpi) {
  for (const char* own :
       {"--async local:4 --amp f16", "--async diloco:4", "--async stale", "--compress powersgd:1"})
    expect_goes_on(mpirun(2) + tiny_gpt(std::string("--steps 12 ") + own), 5);
}

TEST(Checkpoints, TrainResnetGoesOnBitwiseInTheMidstOfAnEpochMpi) {
  expect_goes_on(mpirun(2) + tiny_resnet("--epochs 2 --steps 44 --ema 0.9 --workers 2 "
                                         "--eval-every 12 --patience 9"),
                 20);
}

TEST(Checkpoints, TrainGptStopsForLackOfImprovementAtTheSameStepAgainAndKeepsTheBestMpi) {
  const TemporaryFolder folder;
  const auto [whole, again] =
      go_on(mpirun(2) + tiny_gpt("--steps 999 --lr 0.3 --ema 0.5 --eval-every 4 --patience 2"), 10,
            folder);
  std::int64_t stopped = 0, best = 0;
  const auto read = [&](const std::string& output) {
    const auto at = output.find("no better in 2 evaluations: stopped after step ");
    ASSERT_NE(at, std::string::npos) << output;
    ASSERT_EQ(
        std::sscanf(output.c_str() + at,
                    "no better in 2 evaluations: stopped after step %ld\nbest after step %ld:",
                    &stopped, &best),
        2)
        << output;
  };
  read(whole);
  const std::int64_t first_stopped = stopped, first_best = best;
  EXPECT_LT(best, stopped);
  read(again);
  EXPECT_EQ(stopped, first_stopped);
  EXPECT_EQ(best, first_best);
  const auto list =
      run_command(command("lockstep_checkpoint", "list " + (folder / "run").string())).output;
  EXPECT_THAT(list, ::testing::ContainsRegex("step-" + std::to_string(best) +
                                             "  [0-9]+ bytes  metric [0-9.]+  best\n"));
}

// A limit on files stands in for a full disk: it leaves room for the weights, and not for the two
// moments of each.
TEST(Checkpoints, ThatFindNoRoomLeaveTheTrainedWeightsAndACount) {
  const TemporaryFolder folder;
  const auto file = [&](const char* name) { return (folder / name).string(); };
  const std::string program = tiny_gpt("--steps 6 --save " + file("weights.safetensors"));
  const std::string ranks = command("lockstep_run", "-n 2 --max-restarts 0 -- sh ");
  const auto whole = run_command(ranks + folder.write("whole.sh", "exec " + program).string(), 100);
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  const std::string expected = read_file(file("weights.safetensors"));
  fs::remove(file("weights.safetensors"));
  const fs::path limited =
      folder.write("limited.sh", "unset LOCKSTEP_SIM_COVERAGE; ulimit -f " +
                                     std::to_string(expected.size() * 3 / 2 / 512) + "; exec " +
                                     program + " --save-every 2 --checkpoint-dir " + file("run") +
                                     " --log " + file("log"));
  const auto full = run_command(ranks + limited.string(), 100);
  EXPECT_EQ(full.exit_code, lockstep::train::Loop::not_saved) << full.output;
  EXPECT_THAT(full.output, HasSubstr("saving the checkpoint of step 6 failed: "));
  EXPECT_THAT(full.output, HasSubstr("checkpoints that were not saved: "));
  EXPECT_EQ(read_file(file("weights.safetensors")) == expected, true) << full.output;
  EXPECT_GE(read_log(file("log")).back().at("failed_saves"), 1);
}

TEST(Checkpoints, OfAnotherModelAreOneLineAndCode2) {
  const TemporaryFolder folder;
  const std::string run = " --steps 2 --checkpoint-dir " + (folder / "run").string();
  ASSERT_EQ(run_command(tiny_gpt(run), 100).exit_code, 0);
  const auto other = run_command(tiny_gpt(run + " --dtype f64"), 100);
  EXPECT_EQ(other.exit_code, 2) << other.output;
  EXPECT_EQ(occurrences(other.output, ": dtype f32, expected f64"), 1u) << other.output;
  EXPECT_THAT(other.output, HasSubstr("others (LOCKSTEP_LOG_LEVEL=info lists them)"));
  const auto alone = run_command(tiny_gpt("--keep 3"));
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_THAT(alone.output, HasSubstr("give --checkpoint-dir, too"));
}

TEST(Checkpoints, AreLoadedInPartWhereThatIsAskedFor) {
  const TemporaryFolder folder;
  const std::string run = " --checkpoint-dir " + (folder / "run").string();
  ASSERT_EQ(run_command(tiny_gpt("--steps 2" + run), 100).exit_code, 0);
  const auto refused = run_command(tiny_gpt("--steps 4 --ema 0.9" + run), 100);
  EXPECT_EQ(refused.exit_code, 2) << refused.output;
  const auto partial = run_command(tiny_gpt("--steps 4 --ema 0.9 --partial" + run), 100);
  EXPECT_EQ(partial.exit_code, 0) << partial.output;
  EXPECT_THAT(partial.output, HasSubstr("1 left as it was:\n  average: the checkpoint has none\n"));
  EXPECT_THAT(partial.output, HasSubstr("goes on after step 2"));
}

TEST(Checkpoints, AreShownComparedVerifiedAndDeletedByTheTool) {
  const TemporaryFolder folder;
  const std::string run = (folder / "run").string();
  ASSERT_EQ(run_command(tiny_gpt("--steps 6 --save-every 2 --keep 3 --checkpoint-dir " + run), 100)
                .exit_code,
            0);
  const auto tool = [&](const std::string& arguments) {
    return run_command(command("lockstep_checkpoint", arguments));
  };
  EXPECT_THAT(tool("list " + run).output, HasSubstr("step-6"));
  EXPECT_THAT(tool("show " + run).output, HasSubstr("transformer.wte.weight  F32 [256, 32]"));
  EXPECT_EQ(tool("diff " + run + "/step-2 " + run + "/step-2").exit_code, 0);
  EXPECT_EQ(tool("diff " + run + "/step-2 " + run).exit_code, 1);

  using lockstep::checkpoint::read_manifest, lockstep::checkpoint::Verification;
  lockstep::checkpoint::note_verification(
      folder / "run/step-2", read_manifest(folder / "run/step-2"), Verification::damaged);
  const auto is_marked =
      ::testing::ContainsRegex("step-2  [0-9]+ bytes(  metric [0-9.]+)?  damaged\n");
  EXPECT_THAT(tool("list " + run).output, is_marked);
  EXPECT_THAT(tool("verify " + run + "/step-2").output,
              HasSubstr("step-2: whole, though the run had found damage\n"));
  EXPECT_THAT(tool("list " + run).output, ::testing::Not(is_marked));

  const std::string name = "run/step-6/optimizer-00001-of-00001.safetensors";
  std::string bytes = read_file(folder / name);
  const std::size_t byte = bytes.size() - 10;
  bytes[byte] = static_cast<char>(bytes[byte] ^ 4);
  folder.write(name, bytes);
  const auto damaged = tool("verify " + run);
  EXPECT_EQ(damaged.exit_code, 1);
  EXPECT_THAT(damaged.output, HasSubstr("step-4: whole"));
  EXPECT_THAT(damaged.output, HasSubstr("step-6: optimizer-00001-of-00001.safetensors is damaged "
                                        "in bit 2 of byte " +
                                        std::to_string(byte) + ": tensor 'transformer."));
  EXPECT_EQ(tool("prune " + run + " --keep 1").exit_code, 0);
  EXPECT_TRUE(fs::exists(folder / "run/step-6"));  // saved last
  EXPECT_TRUE(fs::exists(folder / "run/step-4"));  // the newest that is whole
  EXPECT_FALSE(fs::exists(folder / "run/step-2"));
  for (const char* command : {"verify ", "list ", "prune "})
    EXPECT_EQ(tool(command + folder.path().string()).exit_code, 2);
  EXPECT_THAT(tool("list " + run + "/step-6").output, HasSubstr("step-6  "));
}

TEST(Checkpoints, TrainGptStopsBehindAStepAndGoesOnBitwiseMpi) {
  const TemporaryFolder folder;
  const std::string saved = (folder / "weights.safetensors").string();
  const std::string program = tiny_gpt("--steps 3000 --save " + saved);
  ASSERT_EQ(run_command(mpirun(2) + program, 100).exit_code, 0);
  const std::string expected = read_file(saved);
  const std::string log = (folder / "log.jsonl").string();
  const std::string run = " --save-every 100000 --eval-every 900 --checkpoint-dir " +
                          (folder / "run").string() + " --log " + log;
  // Rank 1 gets the signal; mpirun is not told.
  const std::string steps = "$(cat " + log + " 2>/dev/null | wc -l)";
  const std::string rank = "if [ $OMPI_COMM_WORLD_RANK = 1 ]; then (while [ " + steps +
                           " -lt 100 ]; do sleep 0.02; done; kill -TERM $$) & fi; exec " + program +
                           run;
  const fs::path script = folder.write("rank.sh", rank);
  const auto stopped = run_command(mpirun(2) + "sh " + script.string(), 100);
  EXPECT_EQ(stopped.exit_code, 75) << stopped.output;
  EXPECT_EQ(occurrences(stopped.output, "rank 1 got SIGTERM"), 1u) << stopped.output;
  const auto again = run_command(mpirun(2) + program + run, 100);
  ASSERT_EQ(again.exit_code, 0) << again.output;
  EXPECT_THAT(again.output, HasSubstr("goes on after step "));
  EXPECT_EQ(read_file(saved) == expected, true) << again.output;
}

}  // namespace
}  // namespace examples::testing
