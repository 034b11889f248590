// Jobs that are asked to stop: by signals to ranks and to the launcher, and by themselves.

#include <csignal>
#include <set>
#include <sstream>

#include "comm/jobs/jobs.hpp"

namespace lockstep::testing {
namespace {

constexpr int stopped = 75;

CommandResult mpi_stop(int ranks, const std::string& environment,
                       const std::string& launcher_options = "") {
  return run_command(environment + " " LOCKSTEP_MPIEXEC " --bind-to none " + launcher_options +
                     " -np " + std::to_string(ranks) + " " + program +
                     " stop-request --device cpu");
}

CommandResult tcp_stop(int ranks, const std::string& environment) {
  return tcp_job(ranks, "stop-request", environment);
}

/// After which steps the ranks said that they stop.
std::multiset<int> steps_of(const CommandResult& result) {
  std::multiset<int> steps;
  std::istringstream words(result.output);
  for (std::string word; words >> word;)
    if (int step = 0; word == "after" && words >> word && word == "step" && words >> step)
      steps.insert(step);
  return steps;
}

/// The ranks, and rank 0 to people, name one step.
int expect_one_step(const CommandResult& result, int ranks) {
  const auto steps = steps_of(result);
  EXPECT_EQ(steps.size(), static_cast<std::size_t>(ranks + 1)) << result.output;
  if (steps.empty()) return -1;
  EXPECT_EQ(steps.count(*steps.begin()), steps.size()) << result.output;
  return *steps.begin();
}

/// All ranks stopped after one step, and the job ended in good order, soon.
int expect_stop(const CommandResult& result, int ranks, const std::string& why) {
  EXPECT_EQ(result.exit_code, stopped) << result.output;
  EXPECT_THAT(result.output, HasSubstr(": " + why));
  EXPECT_THAT(result.output, Not(HasSubstr("error:")));
  EXPECT_LT(seconds_after_event(result), 10 * timeout_multiplier) << result.output;
  return expect_one_step(result, ranks);
}

std::string rank_got(int rank, const std::string& signal) {
  return "rank " + std::to_string(rank) + " got " + signal;
}

TEST(SingleJob, StopsAfterTheStepInWhichASignalComes) {
  for (const std::string signal : {"TERM", "USR1"}) {
    const auto result =
        run_command("JOB_EVENT=" + signal + " " + program + " stop-request --device cpu");
    EXPECT_EQ(expect_stop(result, 1, rank_got(0, "SIG" + signal)), 20);
  }
}

TEST(SingleJob, SecondSignalEndsItAtOnce) {
  const auto result = run_command("JOB_EVENT=TERM JOB_REPEAT=2200 JOB_SAVE=20000 " + program +
                                  " stop-request --device cpu");
  EXPECT_EQ(result.exit_code, 128 + SIGTERM) << result.output;
  EXPECT_EQ(occurrences(result.output, "ended by a second SIGTERM"), 1u) << result.output;
  EXPECT_LT(seconds_after_event(result), 5 * timeout_multiplier) << result.output;
}

TEST(SingleJob, InterruptSaysSoAndEnds) {
  const auto result =
      run_command("JOB_EVENT=INT " + program + " stop-request --device cpu; echo code $?");
  EXPECT_THAT(result.output, AllOf(HasSubstr("interrupted\n"), HasSubstr("code 130")));
}

TEST(SingleJob, RefusesAGraceTimeThatIsNone) {
  const auto result =
      run_command("LOCKSTEP_GRACE_TIME=soon " + program + " stop-request --device cpu");
  EXPECT_EQ(result.exit_code, 2) << result.output;
  EXPECT_THAT(result.output, HasSubstr("LOCKSTEP_GRACE_TIME must be a positive number of seconds"));
}

TEST(MpiStop, SignalToAnyRankStopsAllAfterOneStep) {
  for (const int ranks : {2, 4})
    for (int culprit = 0; culprit < ranks; culprit += ranks - 1)
      for (const std::string signal : {"TERM", "USR1"})
        expect_stop(mpi_stop(ranks, "LOCKSTEP_GRACE_TIME=10 JOB_EVENT=" + signal +
                                        " JOB_CULPRIT=" + std::to_string(culprit)),
                    ranks, rank_got(culprit, "SIG" + signal));
}

TEST(MpiStop, RanksKnowHowMuchTimeIsLeft) {
  const auto timely = mpi_stop(2, "JOB_EVENT=TERM LOCKSTEP_GRACE_TIME=20");
  EXPECT_EQ(occurrences(timely.output, "in time"), 2u) << timely.output;
  const auto late = mpi_stop(2, "JOB_EVENT=TERM LOCKSTEP_GRACE_TIME=8");
  EXPECT_EQ(occurrences(late.output, "late"), 2u) << late.output;
  const auto unknown = mpi_stop(2, "JOB_EVENT=TERM");
  EXPECT_EQ(occurrences(unknown.output, "no limit"), 2u) << unknown.output;
}

TEST(MpiStop, SignalsToAllRanksAtOnceAreOneRequest) {
  for (const std::string signal : {"TERM", "USR1"})
    expect_stop(mpi_stop(4, "JOB_EVENT=" + signal + "-to-all"), 4, "rank ");
}

TEST(MpiStop, SignalThatIsRepeatedAtOnceIsOneRequest) {
  expect_stop(mpi_stop(3, "JOB_EVENT=USR1-to-all JOB_REPEAT=500 JOB_SAVE=900"), 3, "rank ");
}

// As Slurm's own signal before the one of its scancel.
TEST(SingleJob, AnotherSignalAtOnceIsTheSameRequest) {
  const auto result = run_command("JOB_EVENT=USR1 JOB_THEN=TERM JOB_REPEAT=500 JOB_SAVE=900 " +
                                  program + " stop-request --device cpu");
  EXPECT_EQ(expect_stop(result, 1, rank_got(0, "SIGUSR1")), 20);
}

// A launcher or scheduler may tell some ranks later than others.
TEST(MpiStop, SignalThatComesWhenTheRankHasStoppedAlreadyIsTheSameRequest) {
  for (int ranks : {1, 3})
    expect_stop(mpi_stop(ranks, "JOB_LATE=1 JOB_EVENT=USR1 JOB_CULPRIT=0"), ranks,
                rank_got(0, "SIGUSR1"));
}

TEST(MpiStop, LauncherForwardsItsSignal) {
  const auto result = mpi_stop(3, "JOB_EVENT=USR1-to-launcher");
  expect_stop(result, 3, "rank ");
}

// Open MPI waits for that time, sends the ranks SIGTERM, waits once more, and sends SIGKILL;
// its own exit code is 1.
TEST(MpiStop, LauncherThatIsTerminatedLeavesTimeToSave) {
  const auto result =
      mpi_stop(2, "JOB_EVENT=TERM-to-launcher JOB_SAVE=1500", "--mca odls_base_sigkill_timeout 5");
  EXPECT_NE(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("got SIGTERM"));
  EXPECT_THAT(result.output, Not(HasSubstr("error:")));
  expect_one_step(result, 2);
}

TEST(MpiStop, LauncherThatIsTerminatedKillsRanksThatTakeLonger) {
  const auto result = mpi_stop(2, "JOB_EVENT=TERM-to-launcher JOB_SAVE=30000");
  EXPECT_NE(result.exit_code, 0) << result.output;
  EXPECT_LT(seconds_after_event(result), 10 * timeout_multiplier) << result.output;
}

TEST(MpiStop, SecondSignalEndsTheJobAtOnce) {
  for (const std::string event : {"TERM", "USR1", "USR1-to-all"}) {
    const auto result = mpi_stop(3, "JOB_REPEAT=2200 JOB_SAVE=30000 JOB_EVENT=" + event);
    const int signal = event == "TERM" ? SIGTERM : SIGUSR1;
    EXPECT_EQ(result.exit_code, 128 + signal) << result.output;
    EXPECT_EQ(occurrences(result.output, "ended by a second SIG"), 1u) << result.output;
    EXPECT_LT(seconds_after_event(result), 8 * timeout_multiplier) << result.output;
  }
}

TEST(MpiStop, WaitsForARankThatIsLate) {
  for (const int culprit : {0, 1})
    expect_stop(mpi_stop(3, "JOB_EVENT=TERM JOB_SLOW=2000 JOB_CULPRIT=" + std::to_string(culprit)),
                3, rank_got(culprit, "SIGTERM"));
}

TEST(MpiStop, BeforeTheFirstStepItIsTheFirstOne) {
  for (const std::string event : {"TERM", "TERM-to-all"}) {
    const auto result = mpi_stop(2, "JOB_WHEN=start JOB_EVENT=" + event);
    EXPECT_LT(expect_stop(result, 2, "rank "), 60);
  }
}

TEST(MpiStop, AfterTheLastStepTheProgramEndsByItself) {
  const auto result = mpi_stop(3, "JOB_WHEN=end JOB_STEPS=30 JOB_EVENT=TERM JOB_CULPRIT=2");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(occurrences(result.output, "is through"), 3u) << result.output;
  EXPECT_THAT(result.output, HasSubstr("not stopping, all steps are done: rank 2 got SIGTERM"));
}

// The step at which all can stop is one of those left, or none is.
TEST(MpiStop, ShortlyBeforeTheLastStepAllStopOrNone) {
  for (const int steps : {21, 22, 40}) {
    const auto result = mpi_stop(3, "JOB_EVENT=TERM JOB_STEPS=" + std::to_string(steps));
    const std::size_t through = occurrences(result.output, "is through");
    EXPECT_TRUE(through == 0 || through == 3) << result.output;
    if (through == 0) expect_stop(result, 3, "rank ");
    if (through == 3) {
      EXPECT_EQ(result.exit_code, 0) << result.output;
    }
  }
}

TEST(MpiStop, RanksThatNoCollectiveCouplesStopAfterOneStep) {
  for (const int culprit : {0, 2})
    for (const std::string event : {"TERM", "USR1-to-all"})
      expect_stop(mpi_stop(3, "JOB_COUPLED=0 JOB_EVENT=" + event +
                                  " JOB_CULPRIT=" + std::to_string(culprit)),
                  3, "rank ");
}

// Of ranks that are not coupled, the others may have stopped by then.
TEST(MpiStop, RankThatDiesBeforeItStopsEndsTheJobAsEver) {
  const auto result = mpi_stop(3, "JOB_COUPLED=0 JOB_EVENT=TERM JOB_CULPRIT=0 JOB_DEATH=1");
  expect_quick_failure(result);
  EXPECT_NE(result.exit_code, stopped) << result.output;
  EXPECT_THAT(result.output, AnyOf(HasSubstr("rank 2 (host "), HasSubstr("process rank 2")));
}

TEST(MpiStop, IsNoExcuseForAnotherExitCode) {
  const auto result = mpi_stop(2, "JOB_EVENT=TERM JOB_RETURN=3");
  EXPECT_EQ(result.exit_code, 3) << result.output;
  EXPECT_THAT(result.output, HasSubstr("the program returned 3"));
}

TEST(MpiStop, ProgramMayAskItself) {
  expect_stop(mpi_stop(3, "JOB_EVENT=request"), 3, "rank 1 asked for it: its time limit");
}

TEST(TcpStop, TakesNoMicrosecondOfAStep) {
  const auto result = tcp_job(2, "time-stop-request");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  const std::string words = "a step takes ";
  const std::size_t at = result.output.find(words);
  ASSERT_NE(at, std::string::npos) << result.output;
  EXPECT_LT(std::stod(result.output.substr(at + words.size())), 1000 * timeout_multiplier);
}

TEST(TcpStop, SignalToAnyRankStopsAllAfterOneStep) {
  for (int culprit = 0; culprit < 3; ++culprit)
    expect_stop(tcp_stop(3, "JOB_EVENT=USR1 JOB_CULPRIT=" + std::to_string(culprit)), 3,
                rank_got(culprit, "SIGUSR1"));
  expect_stop(tcp_stop(4, "JOB_EVENT=TERM-to-all JOB_COUPLED=0"), 4, "rank ");
}

TEST(TcpStop, SecondSignalEndsTheJobAtOnce) {
  const auto result = tcp_stop(3, "JOB_EVENT=TERM JOB_REPEAT=2200 JOB_SAVE=30000");
  EXPECT_EQ(result.exit_code, 128 + SIGTERM) << result.output;
  EXPECT_LT(seconds_after_event(result), 8 * timeout_multiplier) << result.output;
}

}  // namespace
}  // namespace lockstep::testing
