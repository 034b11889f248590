// Whole runs of lockstep_run on one host.

#include <csignal>
#include <filesystem>
#include <string>

#include "examples/supervised_runs.hpp"

namespace examples::testing {
namespace {

using lockstep::testing::read_file;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

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

TEST_F(Run, MeetsByIPv6OnAHostThatHasNoOther) {
  const std::string alone =
      "unshare -Urn sh -c \"ip link set lo up && ip addr del 127.0.0.1/8 dev lo && "
      "ip -6 addr show dev lo | grep -q ::1 && ";
  if (run_command(alone + "true\"").exit_code != 0)
    GTEST_SKIP() << "no network with IPv6 alone here";
  const auto result =
      run_command(alone + command("lockstep_run", "-n 2 -- printenv MASTER_ADDR") + "\"");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(occurrences(result.output, "::1\n"), 2u) << result.output;
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
  for (const std::string options :
       {"", "-n 0 true", "-np 0 true", "-np", "-n 2", "-n 2 --colour true", "--hosts /no/file true",
        "-n 1 --min-hosts 2 true"}) {
    const auto wrong = run_command(command("lockstep_run", options));
    EXPECT_EQ(wrong.exit_code, 2) << options;
    EXPECT_EQ(occurrences(wrong.output, "\n"), 1u) << wrong.output;
  }
}

// A file system that is not there yet on a host that has come back, say.
TEST_F(Run, ProgramThatCannotBeStartedForAWhileBehindStepsIsTriedAgain) {
  const std::string program = path("program"), log = path("log");
  folder.write("program", std::string("#!/bin/sh\n[ $LOCKSTEP_RUN_GENERATION != 1 ] && exit 0\n") +
                              step_34 + "mv " + program + " " + program + "-away\nexit 3\n");
  fs::permissions(program, fs::perms::owner_all);
  const auto result = run_command(command("lockstep_run", "-n 1 -- " + program) + " 2>" + log +
                                      " & supervisor=$!; until grep -qs cannot.run " + log +
                                      "; do sleep 0.05; done; mv " + program + "-away " + program +
                                      "; wait $supervisor",
                                  30);
  EXPECT_EQ(result.exit_code, 0) << read_file(log);
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

// A file of data that is not there, say.
TEST_F(Run, EndsWhenItExitsTwiceAlikeBeforeItsFirstStep) {
  const auto result = result_of("-n 2", "[ $RANK = 0 ] && sleep 60\nexit 1");
  EXPECT_EQ(result.exit_code, 1) << result.output;
  EXPECT_EQ(occurrences(result.output, "rank 1 ended with code 1"), 2u) << result.output;
  EXPECT_THAT(result.output,
              HasSubstr("ends: it ended with code 1 before its first step, 2 times"));
}

// A store that hangs for all, say.
TEST_F(Run, ThatMakesNoStepIsToldAndStartedAgainWhereThatIsAskedFor) {
  const std::string script =
      std::string("[ $LOCKSTEP_RUN_GENERATION = 2 ] && exit 0\n") + step_34 + "sleep 4\n" +
      "printf '\\043' | dd of=$LOCKSTEP_RUN_PROGRESS bs=1 seek=8 conv=notrunc 2>/dev/null\n"
      "sleep 60\n";
  const auto result = result_of("-n 2 --stall-timeout 3", script, "LOCKSTEP_STALL_REPORT=1 ");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output,
              AllOf(ContainsRegex(
                        "lockstep_run: no rank has completed a step for [0-9]+ s, behind step 35:"),
                    ContainsRegex("lockstep_run: rank 1 \\(pid [0-9]+\\) behind step 35 sleeps"),
                    ContainsRegex("no rank has completed a step for [0-9]+ s, behind step 35\n"),
                    HasSubstr("restart 1 of 10")));
}

TEST_F(Run, TakesNpForTheNumberOfRanksAsOthersDo) {
  for (const std::string options : {"-np 2", "--tag-output --np 2", "-n 2"}) {
    const auto result = run_command(command("lockstep_run", options + " echo -np 3"));
    EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_EQ(occurrences(result.output, "-np 3\n"), 2u) << result.output;
  }
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

// As Slurm and systemd do.
TEST_F(Run, SignalToAllProcessesOfAJobIsOneToTheRanks) {
  const auto result = result_with(
      "-n 2",
      "trap 'echo rank $RANK saves; exit 75' TERM\n" + ready() + "while :; do sleep 0.05; done\n",
      2, "kill -TERM $(pgrep -P $supervisor) $supervisor");
  EXPECT_EQ(result.exit_code, 75) << result.output;
  EXPECT_EQ(occurrences(result.output, " saves"), 2u) << result.output;
}

TEST_F(Run, NeedsNoStandardStreams) {
  const std::string script = "echo out; echo error >&2\n" + ready();
  const auto result =
      run_command(run("-n 1", script) + " <&- >&- 2>&-; echo $? >" + path("code"), 20);
  EXPECT_EQ(result.output, "");
  EXPECT_EQ(read_file(path("code")), "0\n");
}

// More than one pipe takes, and less than the three on its way.
TEST_F(Run, SignalReachesRanksWhileNobodyReadsTheOutput) {
  const std::string script = "trap 'touch " + path("told") + "; exit 75' TERM\n" +
                             "head -c 120000 /dev/zero\n" + ready() +
                             "while :; do sleep 0.05; done\n";
  const auto result = run_command(
      "(" + run("-n 1", script) + " & supervisor=$!; until [ -e " + path("ready-0") +
          " ]; do sleep 0.02; done; sleep 0.2; kill -TERM $supervisor; wait $supervisor; echo $? "
          ">" +
          path("code") + ") | (until [ -e " + path("told") + " ]; do sleep 0.05; done; wc -c)",
      30);
  // A line without an end gets one, unless it is so long that it came in pieces.
  EXPECT_THAT(result.output, AnyOf("120000\n", "120001\n"));
  EXPECT_EQ(read_file(path("code")), "75\n");
}

// Ranks that write for ever, to a reader that waits for the end of the run.
TEST_F(Run, GraceTimeAndInterruptHoldWhileNobodyReadsTheOutput) {
  const std::string script = "trap '' TERM INT\n" + ready() + "exec yes\n";
  const auto code_behind = [&](const std::string& signals) {
    for (const std::string file : {"code", "ready-0"}) fs::remove(path(file));
    run_command("(" + run("-n 1 --grace 1", script) + " & supervisor=$!; until [ -e " +
                    path("ready-0") + " ]; do sleep 0.02; done; sleep 0.5; " + signals +
                    "; wait $supervisor; echo $? >" + path("code") + ") | until [ -e " +
                    path("code") + " ]; do sleep 0.05; done",
                30);
    return read_file(path("code"));
  };
  EXPECT_EQ(code_behind("kill -TERM $supervisor"), "143\n");
  EXPECT_EQ(code_behind("kill -INT $supervisor; sleep 0.6; kill -INT $supervisor"), "130\n");
}

TEST_F(Run, ClosedTerminalStopsRanksUnlessThatIsIgnored) {
  const std::string loop = ready() + "while :; do sleep 0.05; done\n";
  const auto closed =
      result_with("-n 2", "trap 'exit 75' TERM\n" + loop, 2, "kill -HUP $supervisor");
  EXPECT_EQ(closed.exit_code, 75) << closed.output;
  const auto ignored =
      result_with("-n 2", "kill -HUP $$\ntrap 'exit 4' TERM\ntrap 'exit 75' USR1\n" + loop, 2,
                  "kill -HUP $supervisor; sleep 0.5; kill -USR1 $supervisor", "nohup ");
  EXPECT_EQ(ignored.exit_code, 75) << ignored.output;
}

// The scheduler may start it again, but must not take its last steps for saved.
TEST_F(Run, AskedToStopWhileRanksDieItEndsByTheSignal) {
  const auto one_dies = result_with(
      "-n 2", "trap 'exit $((75 - 72 * RANK))' TERM\n" + ready() + "while :; do sleep 0.05; done\n",
      2, "kill -TERM $supervisor");
  EXPECT_EQ(one_dies.exit_code, 128 + SIGTERM) << one_dies.output;
  EXPECT_THAT(one_dies.output, HasSubstr("asked to stop by SIGTERM, but not all ranks did so in "
                                         "good order: rank 1 ended with code 3"));
  const std::string log = path("log");
  const auto in_a_delay = run_command(
      run("-n 1", "kill -SEGV $$") + " 2>" + log + " & supervisor=$!; until grep -qs " + "in.1.s " +
          log + "; do sleep 0.02; done; kill -USR1 $supervisor; " + "wait $supervisor",
      30);
  EXPECT_EQ(in_a_delay.exit_code, 128 + SIGUSR1) << read_file(log);
}

TEST_F(Run, KillsRanksThatTakeLongerThanTheGraceTime) {
  const auto result = result_with(
      "-n 2 --grace 1",
      "trap '' TERM\necho $LOCKSTEP_GRACE_TIME s\n" + ready() + "while :; do sleep 0.05; done\n", 2,
      "kill -TERM $supervisor");
  EXPECT_EQ(result.exit_code, 128 + SIGTERM) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr("1 s\n"), HasSubstr("was killed by SIGKILL"),
                                   Not(HasSubstr("restart"))));
}

TEST_F(Run, InterruptEndsAllRanks) {
  const auto result = result_with("-n 2", ready() + "exec sleep 60\n", 2, "kill -INT $supervisor");
  EXPECT_EQ(result.exit_code, 128 + SIGINT) << result.output;
  EXPECT_LT(result.seconds, 20);
}

TEST_F(Run, InterruptEndsARankThatHasLeftItsGroup) {
  const auto result =
      result_with("-n 1",
                  "exec perl -e \"setpgrp(0, getpgrp(getppid())); \\$SIG{INT} = IGNORE; "
                  "open F, q(>" +
                      path("ready-0") + "); sleep 60\"\n",
                  1, "kill -INT $supervisor; sleep 0.2; kill -INT $supervisor");
  EXPECT_EQ(result.exit_code, 128 + SIGINT) << result.output;
  EXPECT_LT(result.seconds, 9);
}

// As a careless script does.
TEST_F(Run, FileOfStepsThatIsCutShortEndsNoAgent) {
  const auto result = result_of("-n 1", "true >$LOCKSTEP_RUN_PROGRESS\nsleep 1.2\nexit 0\n");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, Not(HasSubstr("lost")));
}

TEST_F(Run, FolderThatIsGoneCostsRestartsAlone) {
  const fs::path here = folder / "here";
  fs::create_directory(here);
  const auto result =
      run_command("cd " + here.string() + "; " +
                      run("-n 1 --max-restarts 1", "echo start $LOCKSTEP_RUN_GENERATION\n" +
                                                       std::string(step_34) + "rmdir " +
                                                       here.string() + "\nkill -9 $$\n"),
                  30);
  EXPECT_THAT(result.output, HasSubstr("in " + here.string() + ": No such file"));
  EXPECT_THAT(result.output, HasSubstr("ends: it was started again 1 times"));
}

TEST_F(Run, RankThatIsStoppedIsEndedThoughItIsAlone) {
  const auto result =
      result_of("-n 1", "[ $LOCKSTEP_RUN_GENERATION = 2 ] && exit 0\nkill -STOP $$\n",
                "LOCKSTEP_HEARTBEAT_TIMEOUT=2 ");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr("is stopped, by a signal or a debugger, for 3 s"),
                                   HasSubstr("restart 1 of 10")));
}

/// How many processes have these words in their command lines.
std::string count(const std::string& words) { return "$(pgrep -fc \"" + words + "\")"; }

// Whoever is killed, the ranks and what they have started end.
TEST_F(Run, LeavesNothingBehindWhenItIsKilled) {
  const std::string sleep = "sleep 613" + std::to_string(getpid());
  const std::string kept = "setsid " + sleep + " & " + sleep + " & " + ready() + sleep + "\n";
  const std::string gone = "for i in $(seq 100); do [ " + count("^" + sleep) +
                           " = 0 ] && echo all gone && break; sleep 0.05; done";
  const auto killed = result_with("-n 2", kept, 2, "kill -KILL $supervisor; " + gone);
  EXPECT_THAT(killed.output, HasSubstr("all gone"));
  // Each starts one that leaves its group: when it ends, that one is the agent's.
  const fs::path chain =
      folder.write("chain.sh", "[ $1 = 0 ] || setsid sh $0 $(($1 - 1)) &\nexec " + sleep + "\n");
  const auto restarted = result_of(
      "-n 2", "if [ $LOCKSTEP_RUN_GENERATION = 1 ]; then\nsetsid sh " + chain.string() + " 5 &\n" +
                  "until [ " + count("^" + sleep) + " -ge 6 ]; do sleep 0.05; done\n" +
                  "[ $RANK = 0 ] && exit 3\n" + sleep + "\nfi\necho left " + count("^" + sleep));
  EXPECT_EQ(restarted.exit_code, 0);
  EXPECT_EQ(occurrences(restarted.output, "left 0\n"), 2u) << restarted.output;
}

// Nobody else notices: a run in an empty folder is a run from the start.
TEST_F(Run, TrainingThatBeginsAnewSinceItsCheckpointsAreGoneIsTold) {
  const std::string saved = path("run"), log = path("log.jsonl");
  const auto result = result_of(
      "-n 1",
      "steps=2\nif [ $LOCKSTEP_RUN_GENERATION = 1 ]; then\nsteps=50000\n(while [ $(cat " + log +
          " 2>/dev/null | wc -l) -lt 20 ]; do sleep 0.005; done; mv " + saved + " " + saved +
          "-gone; kill -KILL $$) &\nfi\nexec " +
          tiny_gpt("--steps $steps --save-every 5 --checkpoint-dir " + saved + " --log " + log));
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, ContainsRegex("the ranks go on behind step 0, though the checkpoint "
                                           "of step [0-9]+ was saved"));
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
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("rank 1 was killed by SIGKILL behind step "),
                    HasSubstr("goes on after step "), Not(HasSubstr("though the checkpoint"))));
  EXPECT_EQ(read_file(saved) == expected, true) << result.output;
}

}  // namespace
}  // namespace examples::testing
