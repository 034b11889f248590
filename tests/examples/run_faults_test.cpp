// Runs of lockstep_run that meet faults at random, and end as the one that meets none.

#include <array>
#include <random>
#include <sstream>
#include <string>

#include "examples/jobs.hpp"

namespace examples::testing {
namespace {

using ::testing::HasSubstr;

/// A run on one or two hosts, and a script of what happens to it.
class FaultyRun : public ::testing::Test {
 protected:
  static constexpr int steps_a_round = 20;

  /// Two hosts, where this machine has namespaces for them.
  static bool has_hosts() {
    static const bool has = run_command(LOCKSTEP_HOSTS " 2 true").exit_code == 0;
    return has;
  }

  /// The last line of a run: a hash of its weights. Where there are faults, it must meet each kind.
  std::string end_of(const std::string& name, int ranks, int steps, const std::string& faults,
                     int limit) const {
    const std::string run = (folder / (name + "-" + std::to_string(ranks))).string();
    std::filesystem::create_directories(run);
    const auto job =
        folder.write("job.sh", "echo $$ >" + run + "/pid-$RANK\nexec " LOCKSTEP_CHECKPOINT_JOB " " +
                                   run + "/saved " + std::to_string(steps) +
                                   " --device cpu --full " + run + "/full\n");
    std::string where = "-n " + std::to_string(ranks);
    if (has_hosts())
      where = "--launcher \"$HOSTS on\" --hosts " +
              folder
                  .write("hosts", "0 address=10.98.0.1 slots=" + std::to_string((ranks + 1) / 2) +
                                      "\n1 address=10.98.0.2 slots=" + std::to_string(ranks / 2))
                  .string();
    const std::string script =
        "run=" + run + "\nstart() {\n  " +
        command("lockstep_run", where + " --max-restarts 1000 --deaths-per-step 0 -- sh ") +
        job.string() + " >>$run/output 2>&1 & supervisor=$!\n}\n" + functions + "start\n" + faults +
        "finish\n";
    const auto driver = folder.write("driver.sh", script);
    const std::string environment =
        "LOCKSTEP_HEARTBEAT_TIMEOUT=2 LOCKSTEP_JOIN_TIMEOUT=10 OMP_NUM_THREADS=1 ";
    const auto result = run_command(
        environment + (has_hosts() ? LOCKSTEP_HOSTS " 2 " : "") + "sh " + driver.string(), limit);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    for (const std::string kind : {"KILL", "STOP", "TERM", "full", "cut"})
      EXPECT_EQ(occurrences(result.output, "met " + kind),
                faults.empty() || (kind == "cut" && !has_hosts()) ? 0u : 1u)
          << kind << "\n"
          << result.output;
    const std::size_t end = result.output.rfind("end ");
    EXPECT_NE(end, std::string::npos) << result.output;
    return end == std::string::npos ? result.output : result.output.substr(end);
  }

  /// What happens, a line each.
  static std::string faults(int rounds, int ranks, unsigned seed) {
    std::mt19937 random(seed);
    std::ostringstream script;
    for (int round = 0; round < rounds; ++round) {
      constexpr std::array kinds{"lose KILL", "lose STOP", "term", "fill", "cut"};
      const std::string kind = kinds[(round < 5 ? static_cast<unsigned>(round) : random()) % 5];
      script << "at " << (round + 1) * steps_a_round << " 0." << random() % 10 << "\n";
      script << (kind != "cut" || has_hosts() ? kind : "fill") << " " << random() % ranks << "\n";
    }
    return script.str();
  }

  void expect_same_end(int rounds, int ranks, unsigned seed, int limit) const {
    const int steps = (rounds + 2) * steps_a_round;
    const std::string expected = end_of("whole", ranks, steps, "", limit);
    EXPECT_EQ(end_of("faulty", ranks, steps, faults(rounds, ranks, seed), limit), expected);
  }

  TemporaryFolder folder;

 private:
  // at STEP SECONDS: so long after the checkpoint of a step, or a later one, is there.
  static constexpr const char* functions = R"sh(
at() {
  while true; do
    step=$(sed -n 's/^step-//p' $run/saved/latest 2>/dev/null)
    [ "${step:-0}" -ge "$1" ] && break
    kill -0 $supervisor || { cat $run/output; exit 1; }
    sleep 0.02
  done
  sleep $2
}
count() { grep -c "$1" $run/output; }
# until_more WORDS COUNT: until the run says that again, for at most 10 seconds.
until_more() {
  for i in $(seq 200); do
    [ $(count "$1") -gt $2 ] && break
    sleep 0.05
  done
}
full="No space left on device" cut="does not acknowledge what is sent there"
lose() { kill -$1 $(cat $run/pid-$2) 2>/dev/null && echo "lost by $1" >>$run/output; }
term() {
  kill -TERM $supervisor
  wait $supervisor
  echo "ended with $?" >>$run/output
  start
  until tail -n 1 $run/output | grep -q "^resumed\|^step\|^saved\|^end"; do sleep 0.05; done
}
fill() {
  before=$(count "$full")
  touch $run/full
  until_more "$full" $before
  rm -f $run/full
}
cut() {
  before=$(count "$cut")
  $HOSTS cut 1
  sleep 3
  until_more "$cut" $before
  $HOSTS heal 1
}
# met KIND WORDS...: whether the run says all of these.
met() {
  kind=$1
  shift
  for words; do [ $(count "$words") -gt 0 ] || return; done
  echo "met $kind"
}
finish() {
  wait $supervisor || { code=$?; cat $run/output; exit $code; }
  met KILL "^lost by KILL" "was killed by SIGKILL"
  met STOP "^lost by STOP" "silent for\|is stopped, by a signal"
  met TERM "^ended with 75"
  met full "$full"
  met cut "$cut"
  grep "^end " $run/output
}
)sh";
};

TEST_F(FaultyRun, EndsAsOneWithoutFaults) { expect_same_end(5, 2, 1, 120); }

TEST_F(FaultyRun, SlowFaultsOnTwoRanks) { expect_same_end(34, 2, 2, 900); }
TEST_F(FaultyRun, SlowFaultsOnThreeRanks) { expect_same_end(34, 3, 3, 900); }
TEST_F(FaultyRun, SlowFaultsOnFourRanks) { expect_same_end(34, 4, 4, 900); }

}  // namespace
}  // namespace examples::testing
