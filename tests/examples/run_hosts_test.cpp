// Whole runs of lockstep_run on several hosts.

#include <csignal>
#include <filesystem>
#include <sstream>
#include <string>

#include "examples/supervised_runs.hpp"
#include "support/machine_load.hpp"

namespace examples::testing {
namespace {

using lockstep::testing::read_file;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

/// Three hosts that are this one: "down-b" makes b unreachable, "agent-b" has its agent's number.
class ElasticRun : public Run {
 protected:
  std::string hosts(const std::string& more) const {
    const auto launcher = folder.write(
        "launcher.sh", "[ -e " + path("down-$1") + " ] && exit 255\necho $$ >" + path("agent-$1") +
                           "\nexport TEST_HOST=$1\nshift\nexec \"$@\"\n");
    const auto file =
        folder.write("hosts", "a address=127.0.0.1\nb address=127.0.0.1\nc address=127.0.0.1\n");
    return "--hosts " + file.string() + " --launcher \"sh " + launcher.string() + "\" --probe 1 " +
           more;
  }
  std::string lose_b() const {
    return "touch " + path("down-b") + "; kill -KILL $(cat " + path("agent-b") + ")";
  }
};

TEST_F(ElasticRun, GoesOnWithTheHostsThatAreLeftAndTakesThemBack) {
  const auto result =
      result_with(hosts(""),
                  "echo start $LOCKSTEP_RUN_GENERATION of $WORLD_SIZE\n" + ready() +
                      "[ $LOCKSTEP_RUN_GENERATION = 3 ] && exit 0\n" + "trap 'exit 75' USR1\n" +
                      step_34 + "[ $LOCKSTEP_RUN_GENERATION = 2 ] && rm -f " + path("down-b") +
                      "\nwhile :; do sleep 0.05; done\n",
                  3, lose_b());
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(occurrences(result.output, "start 1 of 3"), 3u) << result.output;
  EXPECT_EQ(occurrences(result.output, "start 2 of 2"), 2u) << result.output;
  EXPECT_EQ(occurrences(result.output, "start 3 of 3"), 3u) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr("host b was lost: its agent has ended"),
                                   HasSubstr("starts 2 of 3 ranks"),
                                   HasSubstr("hosts have returned: the ranks stop")));
}

TEST_F(ElasticRun, HostsThatAreNotNeededTakeThePlaceOfLostOnes) {
  const auto result =
      result_with(hosts("-n 2"),
                  "echo start $LOCKSTEP_RUN_GENERATION of $WORLD_SIZE\n" + ready() +
                      "[ $LOCKSTEP_RUN_GENERATION = 2 ] && exit 0\n" + "exec sleep 60\n",
                  2, lose_b());
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(occurrences(result.output, "start 2 of 2"), 2u) << result.output;
}

// What is left of c's ranks then says nothing of the third start, which needs none of c.
TEST_F(ElasticRun, HostsThatAreNamedFirstAreUsedAgainWhenTheyAreBack) {
  const auto result = result_with(hosts("-n 2"),
                                  "echo start $LOCKSTEP_RUN_GENERATION of $WORLD_SIZE\n" + ready() +
                                      "[ $LOCKSTEP_RUN_GENERATION = 3 ] && sleep 1.5 && exit 0\n"
                                      "[ $LOCKSTEP_RUN_GENERATION$RANK = 21 ] && rm -f " +
                                      path("down-b") + " && sleep 2 && exit 3\nexec sleep 60\n",
                                  2, lose_b());
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("rank 1 on c ended with code 3"));
  EXPECT_EQ(occurrences(result.output, "start 3 of 2"), 2u) << result.output;
}

// As a shell of ssh does, and as sshd has its commands read and write where it uses sockets.
TEST_F(ElasticRun, BannerWithoutAnEndOfLineAndAFullSocketLoseNothing) {
  if (run_command("python3 --version").exit_code != 0) GTEST_SKIP() << "no Python here";
  const auto launcher = folder.write("ssh.sh", R"sh(shift
printf Welcome
exec python3 -c '
import os, socket, subprocess, sys, threading, time
here, there = socket.socketpair()
subprocess.Popen(sys.argv[1:], stdin=there, stdout=there)
there.close()
def pass_on():
  while data := os.read(0, 65536):
    here.sendall(data)
  here.shutdown(socket.SHUT_WR)
threading.Thread(target=pass_on, daemon=True).start()
while data := here.recv(65536):
  os.write(1, data)
  time.sleep(0.001)
' "$@"
)sh");
  const auto file = folder.write("hosts", "me@127.0.0.1\n");
  const auto result = run_command(
      command("lockstep_run", "--hosts " + file.string() + " --launcher \"sh " + launcher.string() +
                                  "\" --host-wait 20 -- head -c 4000000 /dev/zero | wc -c"));
  EXPECT_EQ(result.output, "4000001\n");
}

// The supervisor hears from its agent at once, and the agent after 2 s: by then it has been asked
// to stop.
TEST_F(ElasticRun, StartsNoRanksThatWouldNotHearOfTheSignal) {
  const auto launcher = folder.write(
      "late.sh", "shift\ntouch " + path("ready-0") + "\n(sleep 2; exec cat) | \"$@\"\n");
  const auto file = folder.write("hosts", "a address=127.0.0.1\n");
  const auto result =
      result_with("--hosts " + file.string() + " --launcher \"sh " + launcher.string() + "\"",
                  "exec sleep 60\n", 1, "sleep 0.7; kill -TERM $supervisor");
  EXPECT_EQ(result.exit_code, 128 + SIGTERM) << result.output;
}

TEST_F(ElasticRun, ProgramIsFoundOnThePathThatIsPassed) {
  const auto tool = folder.write("tool-of-ranks", "#!/bin/sh\necho found\n");
  fs::permissions(tool, fs::perms::owner_all);
  const auto launcher = folder.write("ssh.sh", "shift\nPATH=/usr/bin:/bin exec \"$@\"\n");
  const auto file = folder.write("hosts", "a address=127.0.0.1\n");
  const auto result =
      run_command("PATH=" + folder.path().string() + ":$PATH " +
                  command("lockstep_run", "-x PATH --hosts " + file.string() + " --launcher \"sh " +
                                              launcher.string() + "\" -- tool-of-ranks"));
  EXPECT_EQ(result.output, "found\n");
}

// Its agent ends soon after each start.
TEST_F(ElasticRun, HostThatComesAndGoesIsTriedMoreAndMoreSeldom) {
  const auto launcher =
      folder.write("brief.sh", "[ $1 = b ] && ( (sleep 0.7; kill -9 $$) & )\nshift\nexec \"$@\"\n");
  const auto file =
      folder.write("hosts", "a address=127.0.0.1\nb address=127.0.0.1\nc address=127.0.0.1\n");
  const auto result =
      result_of("--hosts " + file.string() + " --probe 4 --max-restarts 2 --launcher \"sh " +
                    launcher.string() + "\"",
                "[ $WORLD_SIZE = 2 ] && sleep 1 && exit 0\nexec sleep 60\n");
  EXPECT_EQ(result.exit_code, 0) << result.output;
}

// Processes, memory or descriptors may be short for a while.
TEST_F(ElasticRun, TryThatFailsForWantOfDescriptorsIsTold) {
  const std::string log = path("log");
  const auto result =
      result_with(hosts("2>" + log),
                  ready() +
                      "[ $LOCKSTEP_RUN_GENERATION = 1 ] && exec sleep 60\n"
                      "until grep -q cannot.start.an.agent.on.b:.pipe.failed:.Too.many.open " +
                      log + "; do sleep 0.05; done\necho end of $WORLD_SIZE\n",
                  3, "prlimit --pid $supervisor --nofile=4; " + lose_b());
  EXPECT_EQ(result.exit_code, 0) << result.output << read_file(log);
  EXPECT_EQ(occurrences(result.output, "end of 2"), 2u) << result.output << read_file(log);
}

// A floating address, or one that a router translates.
TEST_F(ElasticRun, RanksAreToldAnAddressThatOnlyLeadsToTheirHost) {
  const auto file = folder.write("hosts", "a address=192.0.2.1\n");
  const auto result = result_of("--hosts " + file.string() + " --launcher \"env -u\"",
                                "echo at $MASTER_ADDR, $LOCKSTEP_LISTENER\n");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, AllOf(ContainsRegex("at 192.0.2.1, [0-9]+\n"),
                                   HasSubstr("192.0.2.1 is no address of a")));
}

TEST_F(ElasticRun, WithTooFewHostsItWaitsAndThenEnds) {
  const auto result =
      result_with(hosts("--min-hosts 3 --host-wait 2"), ready() + "exec sleep 60\n", 3, lose_b());
  EXPECT_EQ(result.exit_code, 1) << result.output;
  EXPECT_THAT(result.output, HasSubstr("2 host(s) can be reached, fewer than 3, for 2 s; b: "));
}

TEST_F(ElasticRun, RanksOfSeveralHostsMeetOverTheirNetwork) {
  const std::string on_hosts = LOCKSTEP_HOSTS " 2 ";
  if (run_command(on_hosts + "true").exit_code == 77)
    GTEST_SKIP() << "no namespaces for hosts here";
  const auto file = folder.write("hosts", "0 address=10.98.0.1\n1 slots=2 address=10.98.0.2\n");
  const fs::path script = folder.write(
      "run.sh", command("lockstep_run", "--hosts " + file.string() + " --launcher \"$HOSTS on\" " +
                                            "-- " + tiny_gpt("--steps 2")));
  const auto result = run_command(on_hosts + "sh " + script.string(), 100);
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("3 rank(s) on cpu"));
}

/// Seconds that a run of 1500 steps may take, of more ranks than there are cores.
int limit_of_run() { return static_cast<int>(200 * lockstep::testing::machine_load()); }

/// Trainings on 3, 2 and 3 ranks again see the same samples: what differs is how sums are rounded.
TEST_F(ElasticRun, SlowTrainingOnThreeTwoAndThreeRanksEqualsThatOnThree) {
  const std::string program =
      command("train_gpt",
              "--layers 1 --heads 2 --channels 32 --context 32 --warmup 5 --threads 1 --dtype f64 "
              "--global-batch 12 --steps 1500 --save-every 50 --data " LOCKSTEP_TEXT);
  const auto whole = run_command(
      command("lockstep_run", "-n 3 -- " + program + " --checkpoint-dir " + path("whole")),
      limit_of_run());
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  const std::string log = path("log.jsonl");
  const auto result =
      result_with(hosts(""),
                  "touch " + path("ready-$RANK") + "\nexec " + program + " --checkpoint-dir " +
                      path("run") + " --log " + log,
                  3,
                  "until [ $(cat " + log + " | wc -l) -gt 100 ]; do sleep 0.05; done; " + lose_b() +
                      "; until [ $(cat " + log + " | wc -l) -gt 300 ]; do sleep 0.05; done; rm " +
                      path("down-b"),
                  "", limit_of_run());
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(occurrences(result.output, "3 rank(s) on cpu"), 2u) << result.output;
  EXPECT_EQ(occurrences(result.output, "2 rank(s) on cpu"), 1u) << result.output;
  const auto diff =
      run_command(command("lockstep_checkpoint", "diff " + path("whole") + " " + path("run")));
  // "... differs by at most 4.5e-11": more than that of a weight is none.
  std::istringstream words(diff.output);
  int differences = 0;
  for (std::string word; words >> word;)
    if (word == "most" && words >> word) {
      EXPECT_LT(std::stod(word), 1e-6) << diff.output;
      ++differences;
    }
  EXPECT_EQ(diff.exit_code, differences > 0 ? 1 : 0) << diff.output;
  EXPECT_EQ(occurrences(diff.output, "only in"), 0u) << diff.output;
}

/// Two hosts of two ranks, one of which is lost and returns.
TEST_F(ElasticRun, SlowReproducibleTrainingOnFourTwoAndFourRanksHasTheBitsOfThatOnFour) {
  const std::string weights = path("weights.safetensors"), log = path("log.jsonl");
  const std::string program = tiny_gpt("--reduction reproducible --steps 1500 --save " + weights);
  const auto whole = run_command(command("lockstep_run", "-n 4 -- " + program), limit_of_run());
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  const std::string expected = read_file(weights);
  fs::remove(weights);
  const std::string options = hosts("");
  folder.write("hosts", "a address=127.0.0.1 slots=2\nb address=127.0.0.1 slots=2\n");
  const std::string after = "until [ $(cat " + log + " | wc -l) -gt ";
  const auto result =
      result_with(options,
                  ready() + "exec " + program + " --save-every 50 --checkpoint-dir " + path("run") +
                      " --log " + log,
                  4,
                  after + "100 ]; do sleep 0.05; done; " + lose_b() + "; " + after +
                      "300 ]; do sleep 0.05; done; rm " + path("down-b"),
                  "", limit_of_run());
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(occurrences(result.output, "4 rank(s) on cpu"), 2u) << result.output;
  EXPECT_EQ(occurrences(result.output, "2 rank(s) on cpu"), 1u) << result.output;
  EXPECT_EQ(read_file(weights) == expected, true) << result.output;
}

// One rank is killed, and later the host of one is lost, with what it had in memory.
TEST_F(ElasticRun, SnapshotsInMemoryLoseAtMostAStep) {
  const std::string job =
      LOCKSTEP_CHECKPOINT_JOB " " + path("run") + " 100 --device cpu --snapshots ";
  const std::string memory = path("memory-$TEST_HOST"), told = path("told-$RANK");
  const auto result =
      result_with(hosts("-n 2"),
                  "mkdir -p " + memory + "\necho $$ >" + path("pid-$RANK") + "\n" + ready() +
                      "exec " + job + memory + " >>" + told + "\n",
                  2,
                  "after() { until grep -qs \"^step $1 \" " + path("told-0") +
                      "; do sleep 0.02; done; }\n" + "after 20; kill -KILL $(cat " + path("pid-1") +
                      "); after 60; " + lose_b() + "; rm -rf " + path("memory-b"),
                  "", 100);
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr("rank 1 on b was killed by SIGKILL behind step "),
                                   HasSubstr("host b was lost")));
  const auto whole = run_command(
      command("lockstep_run", "-n 2 -- " LOCKSTEP_CHECKPOINT_JOB " " + path("whole") +
                                  " 100 --device cpu --snapshots " + folder.path().string()),
      100);
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  std::istringstream lines(read_file(path("told-0")));
  std::string end;
  int starts = 0, last = 0, step = 0;
  for (std::string line, what; std::getline(lines, line);) {
    std::istringstream words(line);
    words >> what >> step;
    if (what == "resumed" && ++starts > 1) {
      EXPECT_GE(step, last - 1) << line;
    }
    if (what == "step") last = step;
    if (what == "end") end = line;
  }
  EXPECT_EQ(starts, 3);
  EXPECT_NE(end, "");
  EXPECT_THAT(whole.output, HasSubstr(end));
  EXPECT_NE(end, "");
  for (const std::string host : {"a", "c"}) EXPECT_TRUE(fs::is_empty(path("memory-" + host)));
}

}  // namespace
}  // namespace examples::testing
