// Whole runs of lockstep_run.

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <string>

#include "examples/jobs.hpp"

namespace examples::testing {
namespace {

using lockstep::testing::read_file;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

/// A run of a shell script as each rank.
class Run : public ::testing::Test {
 protected:
  std::string run(const std::string& options, const std::string& script) const {
    const fs::path path = folder.write("rank.sh", script);
    return command("lockstep_run", options + " -- sh " + path.string());
  }
  CommandResult result_of(const std::string& options, const std::string& script) const {
    return run_command(run(options, script), 30);
  }
  /// Starts a run, does something once all ranks have made the file "ready-RANK", and waits.
  CommandResult result_with(const std::string& options, const std::string& script, int ranks,
                            const std::string& then) const {
    std::string wait;
    for (int rank = 0; rank < ranks; ++rank)
      wait += "until [ -e " + path("ready-" + std::to_string(rank)) + " ]; do sleep 0.02; done; ";
    return run_command(
        run(options, script) + " & supervisor=$!; " + wait + then + "; wait $supervisor", 30);
  }
  std::string path(const std::string& name) const { return (folder / name).string(); }
  std::string ready() const { return "touch " + path("ready-$RANK") + "\n"; }

  TemporaryFolder folder;
};

/// Notes for the supervisor that step 34 is done, as checkpoint::Manager does.
constexpr const char* step_34 =
    "printf '\\042' | dd of=$LOCKSTEP_RUN_PROGRESS bs=1 seek=8 conv=notrunc 2>/dev/null\n"
    "printf '\\0\\0\\0\\0\\0\\0\\0' | dd of=$LOCKSTEP_RUN_PROGRESS bs=1 seek=9 conv=notrunc "
    "2>/dev/null\n";

TEST_F(Run, GivesRanksTheirPlaceAndEndsWithTheirCode) {
  const auto result = result_of("-n 3 --tag-output",
                                "echo $RANK $LOCAL_RANK of $WORLD_SIZE $LOCAL_WORLD_SIZE at "
                                "$MASTER_ADDR generation $LOCKSTEP_RUN_GENERATION\n");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  for (const std::string rank : {"0", "1", "2"})
    EXPECT_THAT(result.output, HasSubstr("[rank " + rank + "] " + rank + " " + rank +
                                         " of 3 3 at 127.0.0.1 generation 1\n"));
  EXPECT_EQ(result_of("-n 2", "exit 75").exit_code, 75);
}

TEST_F(Run, StartsAllRanksAgainWithAnotherTokenAndPort) {
  const auto result =
      result_of("-n 2", "echo $LOCKSTEP_JOB_TOKEN $MASTER_PORT >>" + path("told-$RANK") +
                            "\n[ $LOCKSTEP_RUN_GENERATION$RANK = 11 ] && kill -9 $$\n"
                            "[ $LOCKSTEP_RUN_GENERATION = 1 ] && sleep 60\nexit 0\n");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_LT(result.seconds, 20);
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("rank 1 was killed by SIGKILL, having told of no step"),
                    HasSubstr("restart 1 of 10")));
  const std::string told = read_file(path("told-0"));
  EXPECT_EQ(told, read_file(path("told-1")));
  ASSERT_EQ(occurrences(told, "\n"), 2u) << told;
  const std::string first = told.substr(0, told.find('\n')), second = told.substr(first.size() + 1);
  EXPECT_EQ(first.find(' '), 32u);
  EXPECT_NE(first.substr(0, 32), second.substr(0, 32));
}

TEST_F(Run, DoesNotStartAgainWhatRefusesItsCommandLineOrCannotRun) {
  const auto refused = result_of("-n 2", "exit 2");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.output, Not(HasSubstr("restart")));
  const auto missing = run_command(command("lockstep_run", "-n 2 -- /no/such/program"));
  EXPECT_EQ(missing.exit_code, 127);
  EXPECT_THAT(missing.output, HasSubstr("cannot run /no/such/program"));
  for (const std::string options : {"", "-n 0 true", "-n 2", "-n 2 --colour true",
                                    "--hosts /no/file true", "-n 1 --min-hosts 2 true"}) {
    const auto wrong = run_command(command("lockstep_run", options));
    EXPECT_EQ(wrong.exit_code, 2) << options;
    EXPECT_EQ(occurrences(wrong.output, "\n"), 1u) << wrong.output;
  }
}

TEST_F(Run, EndsWhenItsBudgetIsSpent) {
  const auto result = result_of("-n 1 --max-restarts 1", "kill -SEGV $$");
  EXPECT_EQ(result.exit_code, 128 + SIGSEGV) << result.output;
  EXPECT_EQ(occurrences(result.output, "was killed by SIGSEGV"), 2u) << result.output;
  EXPECT_THAT(result.output, HasSubstr("ends: it was started again 1 times"));
}

TEST_F(Run, EndsWhenTheSameStepDiesTwice) {
  const auto result = result_of("-n 2", std::string(step_34) + "[ $RANK = 0 ] && sleep 60\nexit 3");
  EXPECT_EQ(result.exit_code, 3) << result.output;
  EXPECT_EQ(occurrences(result.output, "rank 1 ended with code 3 behind step 34"), 2u)
      << result.output;
  EXPECT_THAT(result.output, HasSubstr("ends: the step behind step 34 died 2 times"));
}

TEST_F(Run, PassesSignalsOnOnceEachAndDoesNotStartAgain) {
  const auto result = result_with("-n 2",
                                  "trap 'echo rank $RANK got TERM' TERM\ntrap 'exit 75' USR1\n" +
                                      ready() + "while :; do sleep 0.05; done\n",
                                  2, "kill -TERM $supervisor; sleep 0.5; kill -USR1 $supervisor");
  EXPECT_EQ(result.exit_code, 75) << result.output;
  for (const std::string rank : {"0", "1"})
    EXPECT_EQ(occurrences(result.output, "rank " + rank + " got TERM"), 1u) << result.output;
}

TEST_F(Run, KillsRanksThatTakeLongerThanTheGraceTime) {
  const auto result = result_with(
      "-n 2 --grace 1",
      "trap '' TERM\necho $LOCKSTEP_GRACE_TIME s\n" + ready() + "while :; do sleep 0.05; done\n", 2,
      "kill -TERM $supervisor");
  EXPECT_EQ(result.exit_code, 128 + SIGKILL) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr("1 s\n"), Not(HasSubstr("restart"))));
}

TEST_F(Run, InterruptEndsAllRanks) {
  const auto result = result_with("-n 2", ready() + "exec sleep 60\n", 2, "kill -INT $supervisor");
  EXPECT_EQ(result.exit_code, 128 + SIGINT) << result.output;
  EXPECT_LT(result.seconds, 20);
}

/// How many processes have these words in their command lines.
std::string count(const std::string& words) { return "$(pgrep -fc \"" + words + "\")"; }

// Whoever is killed, the ranks and what they have started end.
TEST_F(Run, LeavesNothingBehindWhenItIsKilled) {
  const std::string sleep = "sleep 613" + std::to_string(getpid());
  const std::string kept = sleep + " & " + ready() + sleep + "\n";
  const std::string gone = "for i in $(seq 100); do [ " + count("^" + sleep) +
                           " = 0 ] && echo all gone && break; sleep 0.05; done";
  const auto killed = result_with("-n 2", kept, 2, "kill -KILL $supervisor; " + gone);
  EXPECT_THAT(killed.output, HasSubstr("all gone"));
  const auto restarted = result_of("-n 2", "if [ $LOCKSTEP_RUN_GENERATION = 1 ]; then\n" + sleep +
                                               " & [ $RANK = 0 ] && exit 3\n" + sleep +
                                               "\nfi\necho left " + count("^" + sleep));
  EXPECT_EQ(restarted.exit_code, 0);
  EXPECT_EQ(occurrences(restarted.output, "left 0\n"), 2u) << restarted.output;
}

TEST_F(Run, TrainingGoesOnBitwiseWhenARankIsKilled) {
  const std::string saved = path("weights.safetensors"), log = path("log.jsonl");
  const std::string program = tiny_gpt("--steps 300 --save " + saved);
  const auto whole = run_command(command("lockstep_run", "-n 2 -- " + program), 100);
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  const std::string expected = read_file(saved);
  const std::string steps = "$(cat " + log + " 2>/dev/null | wc -l)";
  const auto result = result_of(
      "-n 2", "if [ $LOCKSTEP_RUN_GENERATION$RANK = 11 ]; then (while [ " + steps +
                  " -lt 20 ]; do sleep 0.005; done; kill -KILL $$) & fi\nexec " + program +
                  " --save-every 5 --checkpoint-dir " + path("run") + " --log " + log);
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr("rank 1 was killed by SIGKILL behind step "),
                                   HasSubstr("goes on after step ")));
  EXPECT_EQ(read_file(saved) == expected, true) << result.output;
}

}  // namespace
}  // namespace examples::testing
