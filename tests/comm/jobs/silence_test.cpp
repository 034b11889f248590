// Jobs of which a rank is silent, busy or slow.

#include <fstream>
#include <utility>

#include "comm/jobs/jobs.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::testing {
namespace {

TEST_P(MpiFaults, StoppedRankIsLostAndEveryRankSaysWhatItDid) {
  const auto result =
      mpi_job(3, std::string("stop --device ") + GetParam(), "LOCKSTEP_HEARTBEAT_TIMEOUT=3");
  expect_failure_within(3 + 5, result);
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("[rank 0] error: rank 1 (host "),
                    HasSubstr("silent for 3 s; its process is stopped"),
                    // It may have failed by itself before it is asked.
                    AnyOf(HasSubstr("[rank 2] rank 2 of world: in all_reduce #20"),
                          AllOf(HasSubstr("[rank 2] rank 2 of world: idle after all_reduce #19"),
                                HasSubstr("failed: rank 2 of world, in all_reduce #20")))));
}

TEST(MpiJob, StoppedRankZeroIsLostToo) {
  const auto result = mpi_job(2, "stop --device cpu", "JOB_CULPRIT=0 LOCKSTEP_HEARTBEAT_TIMEOUT=3");
  expect_failure_within(3 + 5, result);
  EXPECT_THAT(result.output, AllOf(HasSubstr("[rank 1] error: rank 0 (host "),
                                   HasSubstr("its process is stopped")));
}

TEST(TcpJob, StoppedRankIsLost) {
  const auto result = tcp_job(2, "stop", "LOCKSTEP_HEARTBEAT_TIMEOUT=3", "kill -KILL $!");
  expect_failure_within(3 + 5, result);
  EXPECT_THAT(result.output, HasSubstr("its process is stopped"));
}

// A command that runs two others on hosts of their own, as far as the network goes, with a cable
// between them. It ends as the first does.
std::string on_two_hosts(const TemporaryFolder& folder, const std::string& here,
                         const std::string& there) {
  const std::string script = folder / "two_hosts.sh";
  std::ofstream(script) << R"sh(
give_address="ip link set lo up && ip link set e0 up && ip addr add dev e0"
unshare -n sleep 60 & host=$!
until test "$(readlink /proc/$host/ns/net)" != "$(readlink /proc/$$/ns/net)"; do sleep 0.1; done
on_host="nsenter -t $host -n"
ip link add e0 type veth peer name e0 netns $host && sh -c "$give_address 10.98.0.1/24" &&
  $on_host sh -c "$give_address 10.98.0.2/24" || exit 1
$on_host env )sh" << there
                        << " &\nenv " << here << "\ncode=$?\nkill $host\nwait\nexit $code\n";
  return "unshare -Urn sh " + script;
}

TEST(TcpJob, CutCableIsToldFromAStoppedRank) {
  const TemporaryFolder folder;
  if (run_command(on_two_hosts(folder, "true", "true"), 20).exit_code != 0)
    GTEST_SKIP() << "no namespaces for networks here";
  const auto rank = [](int number) {
    return "LOCKSTEP_HEARTBEAT_TIMEOUT=3 JOB_CULPRIT=0 JOB_COMMAND=\"ip link set e0 down\" RANK=" +
           std::to_string(number) +
           " WORLD_SIZE=2 MASTER_ADDR=10.98.0.1 MASTER_PORT=29500 LOCKSTEP_JOB_TOKEN=secret " +
           program + " command-alone --device cpu";
  };
  const auto result = run_command(on_two_hosts(folder, rank(0), rank(1)));
  expect_failure_within(3 + 5, result);
  for (const std::string lost : {"[rank 0] error: rank 1 (host ", "[rank 1] error: rank 0 (host "})
    EXPECT_THAT(result.output, HasSubstr(lost));
  EXPECT_EQ(occurrences(result.output, "its host does not acknowledge what is sent there"), 2u)
      << result.output;
}

TEST_P(MpiFaults, EndlessLoopRunsIntoTheTimeoutAndEveryRankSaysWhatItDid) {
  const auto result = mpi_job(3, std::string("loop --device ") + GetParam(), "LOCKSTEP_TIMEOUT=2");
  expect_failure_within(2 + 5, result);
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("in all_reduce #20"), HasSubstr("timed out after 2000"),
                    HasSubstr("waiting for rank 1"), Not(HasSubstr("waiting for rank 1, rank")),
                    HasSubstr("[rank 1] rank 1 of world: idle after all_reduce #19"),
                    HasSubstr("[rank 1]   before: all_reduce #18"),
                    HasSubstr("[rank 0]   before: all_reduce #15"),
                    HasSubstr("[rank 2] rank 2 of world: ")));
}

// Also where it is rank 0, whose process hands the answers on.
TEST(MpiJobOnGpus, RankThatHasNotBegunACollectiveIsNamedWithWhatItDid) {
  if (const std::string reason = missing("cuda", 4); !reason.empty()) GTEST_SKIP() << reason;
  for (const int rank : {0, 3}) {
    const auto result =
        mpi_job(4, "loop --device cuda", "LOCKSTEP_TIMEOUT=2 JOB_CULPRIT=" + std::to_string(rank));
    expect_failure_within(2 + 5, result);
    EXPECT_THAT(result.output, AllOf(HasSubstr("timed out after 2000 ms, waiting for rank " +
                                               std::to_string(rank) +
                                               " (idle after all_reduce #19 of 200000 f32 (sum))"),
                                     Not(HasSubstr("does not answer"))));
  }
}

// Before its heartbeats are missed; over NCCL the others ask, and it cannot answer.
TEST_P(MpiFaults, StoppedRankRunsIntoATimeoutThatIsShorterThanThatOfHeartbeats) {
  const auto result = mpi_job(3, std::string("stop --device ") + GetParam(), "LOCKSTEP_TIMEOUT=2");
  expect_failure_within(2 + 5, result);
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("in all_reduce #20"), HasSubstr("timed out after 2000"),
                    HasSubstr("waiting for rank 1")));
  if (GetParam() == std::string("cuda")) {
    EXPECT_THAT(result.output, AllOf(HasSubstr("waiting for rank 1 (does not answer)"),
                                     Not(HasSubstr("rank 2 (does not answer)"))));
  }
}

// All that ranks tell each other goes through it. They do not wait for its word for longer than its
// heartbeats have been missed.
TEST_P(MpiFaults, StoppedRankZeroRunsIntoATimeoutToo) {
  const auto result =
      mpi_job(3, std::string("stop --device ") + GetParam(), "LOCKSTEP_TIMEOUT=2 JOB_CULPRIT=0");
  expect_failure_within(2 + 5, result);
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("timed out after 2000"), HasSubstr("waiting for rank")));
}

// Ranks that talk along a tree wait for one another.
TEST(MpiJob, OfManyRanksTheOneIsNamedThatAllWaitFor) {
  for (const auto& [mode, what_it_does] :
       {std::pair{"loop", "(idle after all_reduce #19 of 200000 f32 (sum))"},
        std::pair{"stop", "(does not answer)"}}) {
    const auto result = mpi_job(12, mode + std::string(" --device cpu"),
                                "LOCKSTEP_TIMEOUT=2 JOB_COMM=mpi JOB_CULPRIT=5");
    expect_failure_within(2 + 5, result);
    EXPECT_THAT(result.output,
                HasSubstr(std::string("after 2000 ms, waiting for rank 5 ") + what_it_does + '\n'));
  }
}

TEST(MpiJob, OfManyRanksAStoppedRankZeroIsNamedAlone) {
  const auto result =
      mpi_job(10, "stop --device cpu", "LOCKSTEP_TIMEOUT=2 JOB_COMM=mpi JOB_CULPRIT=0");
  expect_failure_within(2 + 5, result);
  EXPECT_EQ(occurrences(result.output, "ms, waiting for rank "),
            occurrences(result.output, "ms, waiting for rank 0 (does not answer; "))
      << result.output;
}

TEST(TcpJob, OfManyRanksAStoppedOneIsNamed) {
  const auto result = tcp_job(10, "stop", "LOCKSTEP_TIMEOUT=2 JOB_CULPRIT=9", "kill -KILL $!");
  expect_failure_within(2 + 5, result);
  EXPECT_THAT(result.output, HasSubstr("after 2000 ms, waiting for rank 9 (does not answer)\n"));
}

TEST(MpiJob, LateRankIsWaitedFor) {
  const auto result = mpi_job(2, "slow --device cpu", "LOCKSTEP_HEARTBEAT_TIMEOUT=2");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(occurrences(result.output, "is through"), 2u) << result.output;
}

// It is named, and every rank says what it is at; nothing ends before LOCKSTEP_TIMEOUT.
TEST(TcpJob, RankThatOthersWaitForIsNamedWhileItIsWaitedFor) {
  const auto result = tcp_job(3, "slow", "LOCKSTEP_STALL_REPORT=1 JOB_SLOW=4000");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(
      result.output,
      AllOf(::testing::ContainsRegex(  // 1 s, or later where all are late
                "ranks have been in one operation for [1-3] s, waiting for rank 1 [(]host "),
            HasSubstr("[rank 0] rank 0 of world: in all_reduce #0"),
            HasSubstr("[rank 1] rank 1 of world: idle"),
            HasSubstr("[rank 2] rank 2 of world: in all_reduce #0")));
}

// As lockstep_run does where no rank makes a step.
TEST(TcpJob, RanksThatASupervisorAsksSayWhatTheyAreAt) {
  const testing::TemporaryFolder folder;
  const std::string page = folder.write("page", "lockstep" + std::string(40, '\0')).string();
  const auto result = tcp_job(2, "slow",
                              "LOCKSTEP_RUN_PROGRESS=" + page +
                                  " JOB_SLOW=4000; (sleep 1.5; printf '\\1' | dd of=" + page +
                                  " bs=1 seek=40 conv=notrunc 2>/dev/null) & true");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr("[rank 0] rank 0 of world: "),
                                   HasSubstr("[rank 1] rank 1 of world: ")));
}

TEST(MpiJobOnGpus, RankThatOthersWaitForIsNamedWhileItIsWaitedFor) {
  const std::string reason = missing("cuda", 3);
  if (!reason.empty()) GTEST_SKIP() << reason;
  const auto result = mpi_job(3, "slow --device cuda", "LOCKSTEP_STALL_REPORT=1 JOB_SLOW=4000");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(
      result.output,
      AllOf(::testing::ContainsRegex(  // 1 s, or later where all are late
                "ranks have been in one operation for [1-3] s, waiting for rank 1 [(]host "),
            HasSubstr("[rank 0] rank 0 of world: in all_reduce #0"),
            HasSubstr("[rank 1] rank 1 of world: idle"),
            HasSubstr("[rank 2] rank 2 of world: in all_reduce #0")));
}

// Neither progress threads nor heartbeats.
TEST(MpiJob, IdleRanksTakeHardlyAnyProcessorTime) {
  for (const std::string backend : {"shm", "mpi", "tcp"}) {
    const auto result = mpi_job(2, "idle --device cpu", "JOB_COMM=" + backend);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    for (const int rank : {0, 1})
      EXPECT_LT(core_share(result, backend, rank, "takes"), 0.05) << result.output;
  }
}

// Nor where a collective is under way for which another rank is late: the GPU waits, not the host.
TEST(MpiJobOnGpus, IdleRanksTakeHardlyAnyProcessorTime) {
  const std::string reason = missing("cuda", 2);
  if (!reason.empty()) GTEST_SKIP() << reason;
  const auto result = mpi_job(2, "idle --device cuda");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  for (const int rank : {0, 1})
    EXPECT_LT(core_share(result, "nccl", rank, "takes"), 0.05) << result.output;
  EXPECT_LT(core_share(result, "nccl", 0, "takes waiting"), 0.05) << result.output;
}

TEST(SingleJob, RefusesAHeartbeatTimeoutThatIsNoNumber) {
  const auto result = run_command("LOCKSTEP_HEARTBEAT_TIMEOUT=soon " + program + " sum");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.output, HasSubstr("LOCKSTEP_HEARTBEAT_TIMEOUT must be a number of seconds, "
                                       "got 'soon'"));
}

TEST(SingleJob, RefusesATimeoutThatIsNoPositiveNumber) {
  for (const std::string wrong : {"soon", "0", "-3", "nan", "5s"}) {
    const auto result = run_command("LOCKSTEP_TIMEOUT=" + wrong + " " + program + " sum");
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.output, HasSubstr("LOCKSTEP_TIMEOUT must be a positive number of seconds, "
                                         "got '" +
                                         wrong + "'"));
    EXPECT_EQ(occurrences(result.output, "\n"), 1u) << result.output;
  }
}

}  // namespace
}  // namespace lockstep::testing
