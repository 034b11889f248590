// Whole jobs: real processes that fail, vanish, or were started wrongly.

#include <chrono>
#include <csignal>
#include <map>
#include <thread>
#include <tuple>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/tcp/socket.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/runtime/device_runtime.hpp"
#include "support/mpi_environment.hpp"
#include "support/patience.hpp"
#include "support/process.hpp"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using testing::CommandResult;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::occurrences;
using testing::run_command;

const std::string program = LOCKSTEP_JOB_PROGRAM;

// @param environment variables of all ranks: "NAME=value ..."
CommandResult mpi_job(int ranks, const std::string& arguments,
                      const std::string& environment = "") {
  return run_command(environment + " " + LOCKSTEP_MPIEXEC + " --bind-to none -np " +
                     std::to_string(ranks) + " " + program + " " + arguments);
}

// A port that nobody listens on, also where other copies of this test run.
int free_port() { return comm::tcp::local_endpoint(comm::tcp::listen_on({"127.0.0.1", 0})).port; }

std::string tcp_rank(int rank, int size, int port, const std::string& arguments,
                     const std::string& token = "secret") {
  return "RANK=" + std::to_string(rank) + " WORLD_SIZE=" + std::to_string(size) +
         " MASTER_ADDR=127.0.0.1 MASTER_PORT=" + std::to_string(port) +
         " LOCKSTEP_JOB_TOKEN=" + token + " " + program + " " + arguments + " --device cpu";
}

// Starts all ranks of a job over TCP; the result is that of rank 0.
// @param environment a variable of all ranks
// @param at_end a command for when rank 0 has ended, before the others are waited for
CommandResult tcp_job(int size, const std::string& arguments, const std::string& environment = "",
                      const std::string& at_end = "true") {
  const int port = free_port();
  std::string command = environment.empty() ? "" : "export " + environment + "; ";
  for (int rank = 1; rank < size; ++rank) command += tcp_rank(rank, size, port, arguments) + " & ";
  return run_command(command + tcp_rank(0, size, port, arguments) + "; code=$?; " + at_end +
                     "; wait; exit $code");
}

// Why ranks cannot have a GPU each; empty if they can, or need none.
std::string missing(const std::string& device, int ranks) {
  const int gpus = device == "cuda" ? cuda_device_count() : ranks;
  return gpus >= ranks ? ""
                       : std::to_string(ranks) + " ranks but " + std::to_string(gpus) + " GPUs";
}

class MpiJob : public ::testing::TestWithParam<int> {};

TEST_P(MpiJob, SumsOverAllRanks) {
  const int ranks = GetParam();
  const auto result = mpi_job(ranks, "sum --device cpu");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string name = std::to_string(rank) + " of " + std::to_string(ranks);
    EXPECT_THAT(result.output, HasSubstr("rank " + name + " (mpi), local " + name));
  }
  EXPECT_EQ(occurrences(result.output, "sum " + std::to_string(ranks * (ranks - 1) / 2)),
            static_cast<std::size_t>(ranks));
}
INSTANTIATE_TEST_SUITE_P(Ranks, MpiJob, ::testing::Values(1, 2, 3, 4));

TEST(MpiJobOnGpus, SumsOverNccl) {
  for (const int ranks : {1, 2, 4}) {
    const std::string reason = missing("cuda", ranks);
    if (!reason.empty()) GTEST_SKIP() << reason;
    const auto result = mpi_job(ranks, "sum --device cuda");
    EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_EQ(occurrences(result.output, "(nccl)"), static_cast<std::size_t>(ranks));
    EXPECT_EQ(occurrences(result.output, "sum " + std::to_string(ranks * (ranks - 1) / 2)),
              static_cast<std::size_t>(ranks))
        << result.output;
  }
}

// Slurm's --gpus-per-task=1: all ranks call their GPU number 0.
TEST(MpiJobOnGpus, TakesRanksThatSeeOneGpuEach) {
  const std::string reason = missing("cuda", 2);
  if (!reason.empty()) GTEST_SKIP() << reason;
  const auto rank = [](int gpu) {
    return " -np 1 env CUDA_VISIBLE_DEVICES=" + std::to_string(gpu) +
           " LOCKSTEP_SIM_DEVICES=1 LOCKSTEP_SIM_FIRST_DEVICE=" + std::to_string(gpu) + " " +
           program + " sum --device cuda";
  };
  const std::string mpiexec = std::string(LOCKSTEP_MPIEXEC) + " --bind-to none";
  const auto apart = run_command(mpiexec + rank(0) + " :" + rank(1));
  EXPECT_EQ(apart.exit_code, 0) << apart.output;
  EXPECT_EQ(occurrences(apart.output, "sum 1"), 2u) << apart.output;
  const auto same = run_command(mpiexec + rank(1) + " :" + rank(1));
  EXPECT_EQ(same.exit_code, 2) << same.output;
  EXPECT_THAT(same.output, AllOf(HasSubstr("rank 1 on host"), HasSubstr("needs its own")));
}

// Seconds from the event that the job itself noted down to its end; all of them if it noted none.
// The start of the ranks is not what is measured.
double seconds_after_event(const CommandResult& result) {
  const std::string words = "event at ";
  const std::size_t at = result.output.find(words);
  if (at == std::string::npos) return result.seconds;
  const std::chrono::duration<double> end = result.end.time_since_epoch();
  return end.count() - std::stod(result.output.substr(at + words.size())) / 1000;
}

void expect_quick_failure(const CommandResult& result) {
  EXPECT_NE(result.exit_code, 0) << result.output;
  EXPECT_LT(seconds_after_event(result), 10 * testing::patience) << result.output;
}

/// A job of which a rank fails, on the device that is the parameter.
class MpiFaults : public ::testing::TestWithParam<const char*> {
 protected:
  static constexpr int most_ranks = 4;

  void SetUp() override {
    const std::string reason = missing(GetParam(), most_ranks);
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
  static CommandResult job(int ranks, const std::string& mode) {
    return mpi_job(ranks, mode + " --device " + GetParam());
  }
};
INSTANTIATE_TEST_SUITE_P(OnProcessors, MpiFaults, ::testing::Values("cpu"));
INSTANTIATE_TEST_SUITE_P(OnGpus, MpiFaults, ::testing::Values("cuda"));

TEST_P(MpiFaults, ExceptionOfOneRankEndsAllWithItsMessageOnce) {
  const auto result = job(3, "throw");
  expect_quick_failure(result);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(occurrences(result.output, "[rank 1] error: no memory for 7 bytes"), 1u)
      << result.output;
  EXPECT_EQ(occurrences(result.output, "error: "), 1u) << result.output;
}

TEST_P(MpiFaults, ExceptionReachesRanksOutsideCollectives) {
  const auto result = job(2, "throw-alone");
  expect_quick_failure(result);
  EXPECT_THAT(result.output, HasSubstr("[rank 1] error: lonely"));
}

TEST_P(MpiFaults, InvalidArgumentEndsWithCodeTwo) {
  const auto result = job(2, "refuse");
  expect_quick_failure(result);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.output, HasSubstr("[rank 1] error: lr must be positive"));
}

TEST_P(MpiFaults, ErrorBehindAnAbortIsSaidInItsStead) {
  const auto result = job(3, "abort");
  expect_quick_failure(result);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.output, HasSubstr("[rank 1] error: lr must be positive"));
  EXPECT_EQ(occurrences(result.output, "error: "), 1u) << result.output;
}

TEST_P(MpiFaults, ErrorOfAllRanksIsSaidOnce) {
  const auto result = job(4, "refuse-all");
  expect_quick_failure(result);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(occurrences(result.output, "steps must be positive"), 1u) << result.output;
}

TEST_P(MpiFaults, UncaughtExceptionEndsAll) {
  const auto result = job(2, "uncaught");
  expect_quick_failure(result);
  EXPECT_THAT(result.output, HasSubstr("nobody catches this"));
}

TEST_P(MpiFaults, ExceptionInAThreadEndsAll) {
  const auto result = job(2, "thread");
  expect_quick_failure(result);
  EXPECT_THAT(result.output, HasSubstr("in a thread"));
}

TEST_P(MpiFaults, RanksThatCallAnotherCollectiveAreNamedWithIt) {
  const std::map<std::string, std::string> called_by_mode{
      {"other-count", "rank 1 called all_reduce #0 of 1001 f32 (sum)"},
      {"other-collective", "rank 1 called barrier #0"},
      {"other-label", "rank 1 called all_reduce #0 of 1000 f32 (sum) 'bucket 4'"}};
  for (const auto& [mode, called] : called_by_mode) {
    const auto result = job(3, mode);
    expect_quick_failure(result);
    EXPECT_THAT(result.output,
                AllOf(HasSubstr("the ranks of world disagree"), HasSubstr(called),
                      HasSubstr("called all_reduce #0 of 1000 f32 (sum) 'bucket 3'")));
  }
}

// Where the calls are compared beside the collectives, the others have left by then.
TEST_P(MpiFaults, RankThatDisagreesAboutTheLastCollectiveOfAllIsNamed) {
  const auto result = job(2, "other-label-at-the-end");
  expect_quick_failure(result);
  EXPECT_THAT(result.output, AllOf(HasSubstr("the ranks of world disagree"),
                                   HasSubstr("of 1000 f32 (sum) 'bucket 3'"),
                                   HasSubstr("of 1000 f32 (sum) 'bucket 4'")));
}

using DeviceAndEnd = std::tuple<const char*, const char*>;
class MpiLostRank : public ::testing::TestWithParam<DeviceAndEnd> {};

TEST_P(MpiLostRank, IsNamedByTheSurvivors) {
  const std::string device = std::get<0>(GetParam()), end = std::get<1>(GetParam());
  const std::string reason = missing(device, 2);
  if (!reason.empty()) GTEST_SKIP() << reason;
  const auto result = mpi_job(2, end + " --device " + device);
  expect_quick_failure(result);
  EXPECT_THAT(result.output, AllOf(HasSubstr("[rank 0] error: rank 1 (host "), HasSubstr("pid "),
                                   HasSubstr("was lost: connection closed")));
}
INSTANTIATE_TEST_SUITE_P(OnProcessors, MpiLostRank,
                         ::testing::Combine(::testing::Values("cpu"),
                                            ::testing::Values("kill", "kill-alone", "segv",
                                                              "exit")));
INSTANTIATE_TEST_SUITE_P(OnGpus, MpiLostRank,
                         ::testing::Combine(::testing::Values("cuda"),
                                            ::testing::Values("kill", "exit")));

// --- ranks that leave early
// --------------------------------------------------------------------------

TEST_P(MpiFaults, RankThatLeavesEarlyFailsTheOthersCollectives) {
  const auto result = job(3, "leave");
  expect_quick_failure(result);
  EXPECT_THAT(result.output, HasSubstr("rank 1 left world after 20 collectives"));
  EXPECT_EQ(occurrences(result.output, "error: "), 1u) << result.output;
}

TEST(MpiJob, RankZeroMayBeTheOneThatLeavesEarly) {
  const auto result = mpi_job(3, "leave --device cpu", "JOB_CULPRIT=0");
  expect_quick_failure(result);
  EXPECT_THAT(result.output, HasSubstr("rank 0 left world after 20 collectives"));
}

TEST(MpiJob, RankThatLeavesAPartEarlyFailsItsCollectives) {
  const auto result = mpi_job(3, "leave-part --device cpu");
  expect_quick_failure(result);
  EXPECT_THAT(result.output, HasSubstr("rank 1 left world/0.0 after 20 collectives"));
}

TEST(TcpJob, RankThatLeavesEarlyFailsTheOthersCollectives) {
  const auto result = tcp_job(3, "leave");
  expect_quick_failure(result);
  EXPECT_THAT(result.output, HasSubstr("rank 1 left world after 20 collectives"));
}

// Its rank leaves as if all were well.
TEST(MpiJob, CollectiveThatFailsUnwaitedEndsTheJob) {
  for (const std::string mode : {"alone", "alone-in-part"}) {
    const auto result = mpi_job(3, mode + " --device cpu");
    expect_quick_failure(result);
    EXPECT_THAT(result.output, HasSubstr("left world")) << mode;
  }
}

TEST(TcpJob, CollectiveThatFailsUnwaitedEndsTheJob) {
  for (const std::string mode : {"alone", "alone-in-part"}) {
    const auto result = tcp_job(3, mode);
    expect_quick_failure(result);
    EXPECT_THAT(result.output, HasSubstr("left world")) << mode;
  }
}

// --- faults on every rank, from the first thread to the last exit
// ---------------------------------------

using RankAndEnd = std::tuple<int, const char*>;
class MpiDeath : public ::testing::TestWithParam<RankAndEnd> {};

TEST_P(MpiDeath, EndsAllAndNamesTheRank) {
  const std::string rank = std::to_string(std::get<0>(GetParam()));
  const auto result =
      mpi_job(3, std::string(std::get<1>(GetParam())) + " --device cpu", "JOB_CULPRIT=" + rank);
  expect_quick_failure(result);
  // Once the others have left, it is for mpirun to say.
  EXPECT_THAT(result.output, AnyOf(HasSubstr("error: rank " + rank + " (host "),
                                   HasSubstr("process rank " + rank + " with PID")));
}
INSTANTIATE_TEST_SUITE_P(Everywhere, MpiDeath,
                         ::testing::Combine(::testing::Values(0, 2),
                                            ::testing::Values("kill", "segv", "sigabrt",
                                                              "kill-alone", "kill-at-exit")));

TEST(MpiJob, ThreadThatDoesNotStartEndsAll) {
  for (int thread = 1; thread <= 5; ++thread) {
    const auto result = mpi_job(2, "sum --device cpu", "JOB_BAD_THREAD=" + std::to_string(thread));
    EXPECT_LT(result.seconds, 30 * testing::patience) << result.output;
    // MPI does without some of its own.
    const bool is_whole = occurrences(result.output, "sum 1") == 2;
    EXPECT_EQ(result.exit_code == 0, is_whole) << thread << ": " << result.output;
  }
}

TEST(MpiJob, DeathWhileJoiningEndsAll) {
  for (int thread = 1; thread <= 5; ++thread) {
    const auto result = mpi_job(2, "sum --device cpu",
                                "JOB_THREAD_KILLS=1 JOB_BAD_THREAD=" + std::to_string(thread));
    EXPECT_LT(result.seconds, 30 * testing::patience) << result.output;
    const bool is_reached = occurrences(result.output, "does not start") > 0;
    EXPECT_EQ(result.exit_code != 0, is_reached) << thread << ": " << result.output;
  }
}

// --- ranks that are silent, busy or slow
// -----------------------------------------------------------------

TEST(MpiJob, StoppedRankIsLostAndEveryRankSaysWhatItDid) {
  const auto result = mpi_job(3, "stop --device cpu", "LOCKSTEP_HEARTBEAT_TIMEOUT=3");
  expect_quick_failure(result);
  EXPECT_THAT(result.output, AllOf(HasSubstr("[rank 0] error: rank 1 (host "),
                                   HasSubstr("silent for 3 s; its process is stopped"),
                                   HasSubstr("[rank 2] rank 2 of world: in all_reduce #20")));
}

TEST(MpiJob, StoppedRankZeroIsLostToo) {
  const auto result = mpi_job(2, "stop --device cpu", "JOB_CULPRIT=0 LOCKSTEP_HEARTBEAT_TIMEOUT=3");
  expect_quick_failure(result);
  EXPECT_THAT(result.output, AllOf(HasSubstr("[rank 1] error: rank 0 (host "),
                                   HasSubstr("its process is stopped")));
}

TEST(TcpJob, StoppedRankIsLost) {
  const auto result = tcp_job(2, "stop", "LOCKSTEP_HEARTBEAT_TIMEOUT=3", "kill -KILL $!");
  EXPECT_NE(result.exit_code, 0);
  EXPECT_LT(seconds_after_event(result), 10 * testing::patience) << result.output;
  EXPECT_THAT(result.output, HasSubstr("its process is stopped"));
}

TEST(MpiJob, EndlessLoopRunsIntoTheTimeoutAndEveryRankSaysWhatItDid) {
  const auto result = mpi_job(3, "loop --device cpu", "JOB_TIMEOUT=2");
  expect_quick_failure(result);
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("in all_reduce #20"), HasSubstr("timed out after 2000"),
                    HasSubstr("waiting for rank 1"),
                    HasSubstr("[rank 1] rank 1 of world: idle after all_reduce #19"),
                    HasSubstr("[rank 2] rank 2 of world: ")));
}

TEST(MpiJob, SlowRankIsWaitedFor) {
  const auto result = mpi_job(2, "slow --device cpu", "LOCKSTEP_HEARTBEAT_TIMEOUT=2");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(occurrences(result.output, "is through"), 2u) << result.output;
}

TEST(SingleJob, RefusesAHeartbeatTimeoutThatIsNoNumber) {
  const auto result = run_command("LOCKSTEP_HEARTBEAT_TIMEOUT=soon " + program + " sum");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.output, HasSubstr("LOCKSTEP_HEARTBEAT_TIMEOUT must be a number of seconds, "
                                       "got 'soon'"));
}

// --- signals from outside
// --------------------------------------------------------------------------------

TEST(SingleJob, EndsBySignalsAsAnyProgram) {
  for (const auto& [mode, code] :
       {std::pair{"terminate", 128 + SIGTERM}, {"interrupt", 128 + SIGINT}}) {
    const auto result = run_command(program + " " + mode + " --device cpu; echo code $?");
    EXPECT_THAT(result.output, HasSubstr("code " + std::to_string(code)));
    EXPECT_LT(seconds_after_event(result), 10 * testing::patience) << result.output;
  }
}

TEST(MpiJob, SignalToOneRankEndsAllByItsName) {
  const auto terminated = mpi_job(2, "terminate --device cpu");
  expect_quick_failure(terminated);
  EXPECT_THAT(terminated.output, HasSubstr("[rank 1] error: ended by SIGTERM"));
  EXPECT_THAT(terminated.output, Not(HasSubstr("was lost")));
  const auto interrupted = mpi_job(2, "interrupt --device cpu", "JOB_CULPRIT=0");
  expect_quick_failure(interrupted);
  EXPECT_THAT(interrupted.output, HasSubstr("[rank 0] error: ended by SIGINT"));
  EXPECT_THAT(interrupted.output, Not(HasSubstr("was lost")));
}

TEST(TcpJob, InterruptOfAllRanksBlamesNone) {
  const auto result = tcp_job(3, "interrupt-all");
  expect_quick_failure(result);
  EXPECT_EQ(occurrences(result.output, "ended by SIGINT, as Ctrl-C sends it"), 1u) << result.output;
  EXPECT_THAT(result.output, Not(HasSubstr("was lost")));
}

TEST(MpiLaunch, RefusesALauncherThatDisagreesWithMpi) {
  const auto result = run_command("OMPI_COMM_WORLD_SIZE=2 " + program + " sum");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.output, HasSubstr("started 2 ranks, but MPI sees 1"));
}

TEST(MpiLaunch, WarnsOnceOfRanksThatShareCores) {
  const std::string both = std::string(LOCKSTEP_MPIEXEC) + " --bind-to none -np 2 taskset -c 0 " +
                           program + " sum --device cpu";
  const auto result = run_command("OMP_NUM_THREADS=2 " + both);
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(occurrences(result.output, "4 threads of 2 ranks share 1 core,"), 1u) << result.output;
  EXPECT_THAT(result.output, HasSubstr("set OMP_NUM_THREADS=1"));
  EXPECT_EQ(occurrences(run_command("OMP_NUM_THREADS=1 " + both).output, "warning"), 0u);
}

TEST(MpiLaunch, WarnsOfCoresThatBindingLeavesIdle) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "one core cannot be left idle";
  const auto run = [](const std::string& binding) {
    return run_command("env -u OMP_NUM_THREADS " + std::string(LOCKSTEP_MPIEXEC) + " --bind-to " +
                       binding + " -np 1 " + program + " sum --device cpu");
  };
  const auto bound = run("core");
  EXPECT_EQ(bound.exit_code, 0) << bound.output;
  EXPECT_THAT(bound.output, HasSubstr("--bind-to none"));
  EXPECT_EQ(occurrences(run("none").output, "warning"), 0u);
}

TEST(MpiLaunch, RefusesAnUnknownDeviceOnce) {
  const auto result = mpi_job(2, "sum --device tpu");
  expect_quick_failure(result);
  EXPECT_EQ(occurrences(result.output, "got 'tpu'"), 1u) << result.output;
}

TEST(TcpJob, SumsOverTwoAndThreeRanks) {
  for (const int ranks : {2, 3}) {
    const auto result = tcp_job(ranks, "sum");
    EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_EQ(occurrences(result.output, "(tcp)"), static_cast<std::size_t>(ranks))
        << result.output;
    EXPECT_EQ(occurrences(result.output, "sum " + std::to_string(ranks * (ranks - 1) / 2)),
              static_cast<std::size_t>(ranks));
  }
}

TEST(TcpJob, ExceptionOfOneRankEndsAll) {
  const auto result = tcp_job(2, "throw");
  expect_quick_failure(result);
  EXPECT_EQ(occurrences(result.output, "[rank 1] error: no memory for 7 bytes"), 1u)
      << result.output;
}

TEST(TcpJob, ErrorBehindAnAbortIsSaidInItsStead) {
  const auto result = tcp_job(3, "abort");
  expect_quick_failure(result);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.output, HasSubstr("[rank 1] error: lr must be positive"));
  EXPECT_EQ(occurrences(result.output, "error: "), 1u) << result.output;
}

TEST(TcpJob, LostRankIsNamed) {
  const auto result = tcp_job(3, "kill");
  expect_quick_failure(result);
  EXPECT_THAT(result.output, HasSubstr("[rank 0] error: rank 1 (host "));
  EXPECT_THAT(result.output, HasSubstr("[rank 2] error: rank 1 (host "));
}

TEST(TcpJob, RankWithAnotherTokenIsTurnedAway) {
  const int port = free_port();
  const auto result =
      run_command(tcp_rank(0, 2, port, "sum") + " & first=$!; " +
                  tcp_rank(1, 2, port, "sum", "guess") + "; code=$?; kill $first; exit $code");
  EXPECT_EQ(result.exit_code, 1) << result.output;
  EXPECT_THAT(result.output, HasSubstr("another job token"));
}

TEST(TcpJob, RefusesContradictoryEnvironments) {
  const auto expect_refusal = [](const std::string& environment, const std::string& words) {
    const auto result = run_command(environment + " " + program + " sum");
    EXPECT_EQ(result.exit_code, 2) << environment;
    EXPECT_THAT(result.output, HasSubstr(words)) << environment;
  };
  expect_refusal("RANK=0", "WORLD_SIZE is not");
  expect_refusal("WORLD_SIZE=2", "RANK");
  expect_refusal("WORLD_SIZE=2 RANK=2 MASTER_PORT=1 MASTER_ADDR=x", "RANK must be a number");
  expect_refusal("WORLD_SIZE=two RANK=0", "WORLD_SIZE must be a number");
  expect_refusal("WORLD_SIZE=2 RANK=0 MASTER_PORT=99999 MASTER_ADDR=127.0.0.1", "MASTER_PORT");
  expect_refusal("WORLD_SIZE=2 RANK=0 MASTER_PORT=29740 MASTER_ADDR=10.0.0.1",
                 "LOCKSTEP_JOB_TOKEN");
  expect_refusal(
      "TORCHELASTIC_RUN_ID=none LOCAL_WORLD_SIZE=1 WORLD_SIZE=2 RANK=0 MASTER_PORT=29740 "
      "MASTER_ADDR=10.0.0.1",
      "torchrun's run id is no secret");
}

// One rank as torchrun starts it on a single host, where the run id has its default.
std::string torchrun_rank(int rank, int size, int port) {
  return "TORCHELASTIC_RUN_ID=none TORCHELASTIC_USE_AGENT_STORE=True RANK=" + std::to_string(rank) +
         " LOCAL_RANK=" + std::to_string(rank) + " WORLD_SIZE=" + std::to_string(size) +
         " LOCAL_WORLD_SIZE=" + std::to_string(size) + " MASTER_ADDR=a.host.with.any.name" +
         " MASTER_PORT=" + std::to_string(port) + " " + program + " sum --device cpu";
}

TEST(TcpJob, RanksOfOneHostNeedNoTokenAndNoName) {
  const int port = free_port();
  const auto result =
      run_command(torchrun_rank(1, 3, port) + " & " + torchrun_rank(2, 3, port) + " & " +
                  torchrun_rank(0, 3, port) + "; code=$?; wait; exit $code");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(occurrences(result.output, "sum 3,"), 3u) << result.output;
}

TEST(TcpJob, RunsOverIpv6) {
  try {
    comm::tcp::listen_on({"::1", 0});
  } catch (const Error& error) {
    GTEST_SKIP() << "no IPv6 here: " << error.what();
  }
  const int port = free_port();
  const auto rank = [&](int number) {
    return "LOCKSTEP_JOB_TOKEN=secret WORLD_SIZE=2 MASTER_ADDR=::1 MASTER_PORT=" +
           std::to_string(port) + " RANK=" + std::to_string(number) + " " + program +
           " sum --device cpu";
  };
  const auto result = run_command(rank(1) + " & " + rank(0) + "; code=$?; wait; exit $code");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(occurrences(result.output, "sum 1,"), 2u) << result.output;
}

TEST(SingleJob, NeedsNoLauncher) {
  const auto result = run_command(program + " sum --device cpu");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.output, HasSubstr("rank 0 of 1 (self)"));
  EXPECT_THAT(run_command(program + " refuse-all").output,
              AllOf(HasSubstr("error: steps must be positive"), Not(HasSubstr("[rank"))));
}

}  // namespace
}  // namespace lockstep
