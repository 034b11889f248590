// Jobs of several hosts: namespaces with a network of their own, started by tests/support/hosts.sh.

#include <fstream>
#include <iterator>
#include <limits>
#include <regex>
#include <string>
#include <vector>

#include "comm/jobs/disagreement_kinds.hpp"
#include "comm/jobs/jobs.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::testing {
namespace {

class MpiHosts : public ::testing::Test {
 protected:
  void SetUp() override {
    static const int code = run_on(2, "true").exit_code;
    if (code == 77) GTEST_SKIP() << "no namespaces for hosts here";
    ASSERT_EQ(code, 0);
  }
  /// @param options of hosts.sh, and a command.
  static CommandResult run_on(int hosts, const std::string& command) {
    return run_command(LOCKSTEP_HOSTS " " + std::to_string(hosts) + " " + command);
  }
  /// @param environment of all ranks: "-x NAME=value ..."
  static CommandResult job(int hosts, int ranks_a_host, const std::string& arguments,
                           const std::string& environment = "") {
    return run_on(hosts, "--slots " + std::to_string(ranks_a_host) + " mpirun " + environment +
                             " -np " + std::to_string(hosts * ranks_a_host) + " " + program + " " +
                             arguments + " --device cpu");
  }
};

/// From the first that an output tells of to the last.
double seconds_between_events(const std::string& output) {
  const std::string event = "event at ";
  const std::size_t first = output.find(event), last = output.rfind(event);
  if (first == last) return std::numeric_limits<double>::infinity();
  return (std::stod(output.substr(last + event.size())) -
          std::stod(output.substr(first + event.size()))) /
         1000;
}

TEST_F(MpiHosts, SumOverTwoAndThreeHosts) {
  for (const int hosts : {2, 3}) {
    const auto result = job(hosts, 2, "sum");
    ASSERT_EQ(result.exit_code, 0) << result.output;
    EXPECT_EQ(occurrences(result.output, "(hier), local 0 of 2"), static_cast<std::size_t>(hosts))
        << result.output;
    const int ranks = 2 * hosts;
    EXPECT_EQ(occurrences(result.output, "sum " + std::to_string(ranks * (ranks - 1) / 2)),
              static_cast<std::size_t>(ranks))
        << result.output;
  }
}

TEST_F(MpiHosts, RanksMayBeDealtInTurnsAndInUnequalNumbers) {
  const auto in_turns =
      run_on(2, "--slots 2 mpirun --map-by node -np 4 " + program + " sum --device cpu");
  ASSERT_EQ(in_turns.exit_code, 0) << in_turns.output;
  EXPECT_EQ(occurrences(in_turns.output, "(hier)"), 4U) << in_turns.output;
  EXPECT_EQ(occurrences(in_turns.output, "sum 6"), 4U) << in_turns.output;
  EXPECT_THAT(in_turns.output, HasSubstr("rank 2 of 4 (hier), local 1 of 2"));
  const auto unequal = run_on(2, "--slots 3 mpirun -np 4 " + program + " sum --device cpu");
  ASSERT_EQ(unequal.exit_code, 0) << unequal.output;
  EXPECT_EQ(occurrences(unequal.output, "(hier)"), 4U) << unequal.output;
  EXPECT_THAT(unequal.output, HasSubstr("rank 3 of 4 (hier), local 0 of 1"));
}

// Of 5 sums of 4 MiB each host sends half of its own and half of the results.
TEST_F(MpiHosts, DataOfAHostCrossesTheLinkOnceAndNotOnceARank) {
  const auto sent = [](const std::string& backend) {
    const std::string count =
        "sed -n 's/ *e0: *//p' /proc/net/dev | (read -r _ _ _ _ _ _ _ _ sent _; echo $sent)";
    const TemporaryFolder folder;
    const std::string script = folder / "count_sent.sh";
    std::ofstream(script) << "before=$(" << count << ")\nmpirun -x JOB_COMM=" << backend
                          << " -np 6 " << program << " sum-much --device cpu || exit\n"
                          << "echo sent $(($(" << count << ") - before))\n";
    const auto result = run_on(2, "--slots 3 sh " + script);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    const std::size_t at = result.output.find("sent ");
    return at == std::string::npos ? 0.0 : std::stod(result.output.substr(at + 5)) / (20 << 20);
  };
  const double once = sent("hier"), once_a_rank = sent("mpi");
  EXPECT_GT(once, 1.0);
  EXPECT_LT(once, 1.2);
  EXPECT_GT(once_a_rank, 2.9);
}

TEST_F(MpiHosts, HostsOfOneRankEachExchangeMessagesAlone) {
  const auto result = job(2, 1, "sum");
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(occurrences(result.output, "(mpi)"), 2U) << result.output;
}

// The second host can have no shared memory: its files are limited. (MPI's own memory is files,
// too.)
TEST_F(MpiHosts, WhereAHostHasNoMemoryToShareAllExchangeMessages) {
  const TemporaryFolder folder;
  const std::string script = folder / "small_files.sh";
  std::ofstream(script) << "[ \"$(hostname)\" = h0 ] || ulimit -f 64\nexec " << program
                        << " sum --device cpu\n";
  const auto result = run_on(2, "--slots 2 mpirun --mca btl tcp,self -np 4 sh " + script);
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(occurrences(result.output, "(mpi)"), 4U) << result.output;
  EXPECT_EQ(occurrences(result.output, "the communicator backend \"hier\" is left out: rank 2"), 1U)
      << result.output;
}

// Nothing is left of the job on either host, whose processes are all in one namespace: neither of
// them, nor in the memory that is shared (MPI's own files are MPI's).
TEST_F(MpiHosts, RankThatIsKilledOnAnotherHostEndsAllAndIsNamed) {
  const TemporaryFolder folder;
  const std::string script = folder / "kill.sh", list = "sh -c 'ls /dev/shm | grep -v ^vader_'",
                    rank = "grep -qs comm_job_progra /proc/[0-9]*/comm";
  std::ofstream(script) << "mpirun -x JOB_CULPRIT=2 -np 4 " << program << " kill --device cpu\n"
                        << "code=$?\n"
                        << program << " now\ni=0\nwhile [ $i -lt 50 ] && " << rank
                        << "; do sleep 0.1; i=$((i + 1)); done\n"
                        << rank << " && echo a process is left\n"
                        << "echo \"left: $(" << list << "; $HOSTS on 1 " << list << ").\"\n"
                        << "exit $code\n";
  const auto result = run_on(2, "--slots 2 sh " + script);
  EXPECT_NE(result.exit_code, 0) << result.output;
  EXPECT_LT(seconds_between_events(result.output), 10 * timeout_multiplier) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr("rank 2"), HasSubstr("left: ."),
                                   Not(HasSubstr("a process is left"))));
}

// Those that lead their hosts, and those that do not.
TEST_F(MpiHosts, IdleRanksTakeHardlyAnyProcessorTime) {
  const auto result = job(2, 2, "idle", "-x JOB_COMM=hier");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  for (const int rank : {0, 1, 2, 3})
    EXPECT_LT(core_share(result, "hier", rank, "takes"), 0.05) << result.output;
}

TEST_F(MpiHosts, RankThatIsStoppedOnAnotherHostEndsAllAndIsNamed) {
  for (const std::string backend : {"hier", "mpi", "tcp"}) {
    const auto result = job(
        2, 2, "stop", "-x JOB_CULPRIT=3 -x LOCKSTEP_HEARTBEAT_TIMEOUT=3 -x JOB_COMM=" + backend);
    expect_failure_within(3 + 5, result);
    EXPECT_THAT(result.output,
                AllOf(HasSubstr("[rank 0] error: rank 3 (host h1, pid "),
                      HasSubstr("silent for 3 s; its host is reachable, but the process "
                                "is stopped"),
                      HasSubstr("[rank 2] rank 2 of world: ")))
        << backend;
  }
}

TEST_F(MpiHosts, RankThatLoopsOnAnotherHostRunsIntoTheTimeout) {
  for (const std::string backend : {"hier", "mpi", "tcp"}) {
    const auto result =
        job(2, 2, "loop", "-x JOB_CULPRIT=3 -x LOCKSTEP_TIMEOUT=2 -x JOB_COMM=" + backend);
    expect_failure_within(2 + 5, result);
    EXPECT_THAT(result.output,
                AllOf(HasSubstr("in all_reduce #20"), HasSubstr("timed out after 2000"),
                      HasSubstr("waiting for rank 3"),
                      HasSubstr("[rank 3] rank 3 of world: idle after all_reduce #19")))
        << backend;
  }
}

/// Of rank 1, by each kind of disagreement in turns: all in the same namespaces.
class MpiHostsDisagreement : public MpiHosts {
 protected:
  static constexpr int ranks = 4;

  // mpirun ends what is left once one rank has failed: the ranks are out of its reach here, and
  // have to end by themselves. The namespaces end with the script, which therefore waits for them.
  void expect_named(const std::vector<Disagreement>& kinds) const {
    const std::string rank = folder_ / "rank.sh", all = folder_ / "all.sh";
    std::ofstream(rank) << program << " $1 --device cpu\necho \"rank $OMPI_COMM_WORLD_RANK ends "
                        << "with $?, $(" << program << " now)\" >>" << folder_.path().string()
                        << "/$1\n";
    std::ofstream script(all);
    for (const Disagreement& kind : kinds) script << run_and_wait(rank, kind.mode);
    script.close();
    const auto result = run_on(2, "--slots 2 sh " + all);
    for (const Disagreement& kind : kinds) {
      SCOPED_TRACE(kind.mode);
      expect_named(kind, content_of(kind.mode));
    }
  }

 private:
  std::string run_and_wait(const std::string& rank, const std::string& mode) const {
    const std::string file = folder_ / mode;
    return "mpirun -x JOB_COMM=hier -np 4 setsid --fork --wait sh " + rank + ' ' + mode + " >" +
           file + ".out 2>&1\ni=0\nwhile [ $i -lt 100 ] && [ \"$(grep -c ends " + file +
           ")\" != 4 ]; do sleep 0.1; i=$((i + 1)); done\ncat " + file + ".out >>" + file + '\n';
  }
  std::string content_of(const std::string& mode) const {
    std::ifstream file(folder_.path() / mode);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static void expect_named(const Disagreement& kind, const std::string& output) {
    EXPECT_THAT(output, AllOf(HasSubstr(kind.rank_1), HasSubstr(kind.others)));
    EXPECT_EQ(lines_of_errors(output), 1) << output;
    const std::string event = "event at ";
    ASSERT_THAT(output, HasSubstr(event));
    const double begin = std::stod(output.substr(output.rfind(event) + event.size()));
    for (int rank = 0; rank < ranks; ++rank) {
      const std::regex end("rank " + std::to_string(rank) + R"( ends with (\d+), event at (\d+))");
      std::smatch found;
      ASSERT_TRUE(std::regex_search(output, found, end)) << rank << output;
      EXPECT_NE(found[1], "0") << rank << output;
      EXPECT_LT(std::stod(found[2]) - begin, 5000 * timeout_multiplier * machine_load()) << output;
    }
  }

  TemporaryFolder folder_;
};

// Of a collective, of the wrapping of a model, and found by a check.
TEST_F(MpiHostsDisagreement, OfRanksOfTwoHostsEndsEveryRankSoonAndIsToldOnce) {
  expect_named(disagreements_of({"other-order", "other-shape", "flipped-bit"}));
}

TEST_F(MpiHostsDisagreement, SlowOfEveryKindEndsEveryRankSoonAndIsToldOnce) {
  expect_named({std::begin(disagreements), std::end(disagreements)});
}

TEST_F(MpiHosts, RankThatReceivesFromAnotherHostsRankInACollectiveIsNamedWithIt) {
  const auto result = job(2, 2, "message-for-collective");
  expect_quick_failure(result);
  EXPECT_THAT(result.output,
              HasSubstr("rank 2 of world called all_reduce #0 of 1000 f32 (sum) 'bucket 3', but "
                        "rank 1 called receive from rank 2 #0 of 1000 f32"));
}

// Open MPI's mpirun waits for the host that it cannot reach: what ends are the ranks, on both.
TEST_F(MpiHosts, CutLinkEndsTheRanksOnBothSides) {
  const TemporaryFolder folder;
  const std::string script = folder / "cut_link.sh", output = folder / "output";
  std::ofstream(script) << "JOB_COMMAND='" LOCKSTEP_HOSTS " cut 1' mpirun -x JOB_COMMAND "
                        << "-x LOCKSTEP_HEARTBEAT_TIMEOUT=3 -x JOB_CULPRIT=0 -np 2 " << program
                        << " command-alone --device cpu >" << output << " 2>&1 &\n"
                        << "until grep -q 'event at' " << output << "; do sleep 0.1; done\n"
                        << "while grep -qs comm_job_progra /proc/[0-9]*/comm; do sleep 0.1; done\n"
                        << "cat " << output << "; echo all ranks have ended; exit 1\n";
  const auto result = run_on(2, "sh " + script);
  expect_quick_failure(result);
  EXPECT_THAT(result.output, AllOf(HasSubstr("[rank 0] error: rank 1 (host h1"),
                                   HasSubstr("its host does not acknowledge what is sent there"),
                                   HasSubstr("all ranks have ended")));
}

// In a sum of 16 MiB, of which half crosses the link. mpirun hears nothing of the other host any
// more, and would end what is left on this one: the ranks write to files, out of its reach.
TEST_F(MpiHosts, LinkCutWithinASumEndsTheRanksOnBothSides) {
  const TemporaryFolder folder;
  const std::string script = folder / "cut_link.sh", rank = folder / "rank.sh",
                    at = folder / "rank";
  std::ofstream(rank) << program << " sum-beside-command --device cpu >" << at
                      << "$OMPI_COMM_WORLD_RANK 2>&1\necho \"ends with $?, $(" << program
                      << " now)\" >>" << at << "$OMPI_COMM_WORLD_RANK\n";
  std::ofstream(script)
      << "JOB_COMMAND='" LOCKSTEP_HOSTS " cut 1' mpirun -x JOB_COMMAND "
      << "-x LOCKSTEP_HEARTBEAT_TIMEOUT=3 -x JOB_CULPRIT=0 -x JOB_COMM=hier -np 4 "
      << "setsid --fork --wait sh " << rank << " >/dev/null 2>&1 &\ni=0\n"
      << "while [ $i -lt 300 ] && [ \"$(cat " << at
      << "[0-3] 2>/dev/null | grep -c 'ends with')\" != 4 ]; do sleep 0.1; i=$((i + 1)); done\n";
  run_on(2, "--slots 2 sh " + script);
  const auto content_of = [&](int number) {
    std::ifstream file(at + std::to_string(number));
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string of_0 = content_of(0);
  for (int number = 0; number < 4; ++number) {
    const std::string text = content_of(number);
    EXPECT_THAT(text, AllOf(HasSubstr("ends with "), Not(HasSubstr("ends with 0"))));
    EXPECT_LT(seconds_between_events(of_0 + text), (3 + 5) * timeout_multiplier * machine_load())
        << text;
    EXPECT_EQ(lines_of_errors(text), 1) << text;
    const std::string lost =
        number < 2 ? "] error: rank [23] \\(host h1, " : "] error: rank 0 \\(host h0, ";
    EXPECT_TRUE(std::regex_search(text, std::regex(lost))) << text;
  }
}

}  // namespace
}  // namespace lockstep::testing
