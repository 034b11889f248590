#include <map>
#include <random>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "lockstep/checkpoint/folder.hpp"
#include "support/mpi_environment.hpp"
#include "support/process.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep {
namespace {

using testing::run_command, testing::TemporaryFolder;

/// What a job told.
struct Told {
  std::int64_t resumed = -1, saved = -1;
  std::string resumed_hash;
  std::map<std::int64_t, std::string> hashes;  // of each step
};

Told parse(const std::string& output) {
  Told told;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string what, hash;
    std::int64_t step = 0;
    words >> what >> step >> hash;
    if (what == "resumed") {
      told.resumed = step;
      told.resumed_hash = hash;
    } else if (what == "step") {
      told.hashes[step] = hash;
    } else if (what == "saved") {
      told.saved = step;
    }
  }
  return told;
}

/// A job that is killed again and again, and what it must go on from.
class KilledJob {
 public:
  /// @param same it saves always under the same name. @param launcher such as "mpirun -np 2".
  explicit KilledJob(bool same, std::string launcher = {})
      : launcher_(std::move(launcher)), same_(same) {
    reference_ = parse(run_command(command(folder_ / "reference", steps), 120).output);
    reference_.hashes[0] = reference_.resumed_hash;
  }

  /// Runs it until it dies by `how`; checks what it went on from.
  testing::CommandResult run(const std::string& before, const std::string& behind) {
    auto result = run_command(before + command(folder_ / "run", steps) + behind, 60);
    const Told told = parse(result.output);
    if (told.resumed >= 0) {
      EXPECT_GE(told.resumed, saved_) << "a checkpoint that was durable is lost";
      EXPECT_EQ(told.resumed_hash, reference_.hashes[told.resumed]) << told.resumed;
    }
    saved_ = std::max(saved_, told.saved);
    if (saved_ > steps - 10) start_anew();
    return result;
  }
  /// What there is must load.
  void finish() {
    const Told told = parse(run("", "").output);
    EXPECT_GE(told.resumed, 0);
    for (const checkpoint::Found& each : checkpoint::list(folder_ / "run"))
      EXPECT_TRUE(checkpoint::verify(each.path).empty());
  }

  static constexpr std::int64_t steps = 60;

 private:
  std::string command(const std::filesystem::path& folder, std::int64_t to) const {
    return launcher_ + " " LOCKSTEP_CHECKPOINT_JOB " " + folder.string() + " " +
           std::to_string(to) + (same_ ? " --same" : "");
  }
  void start_anew() {
    std::filesystem::remove_all(folder_ / "run");
    saved_ = 0;
  }

  TemporaryFolder folder_;
  std::string launcher_;
  bool same_;
  Told reference_;
  std::int64_t saved_ = 0;
};

class CheckpointKills : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Names, CheckpointKills, ::testing::Bool(), [](const auto& names) {
  return names.param ? "OverTheSameName" : "UnderNewNames";
});

TEST_P(CheckpointKills, AtEveryCallLeaveTheNewestOrTheOneBefore) {
  KilledJob job(GetParam());
  int number = 1;
  // Those of the first three saves, the second and third being over others.
  for (; number <= 120; ++number)
    EXPECT_EQ(job.run("", " --kill-at " + std::to_string(number)).exit_code, 137) << number;
  job.finish();
}

void kill_at_random(KilledJob& job, int kills, double longest) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> seconds(0.01, longest);
  for (int i = 0; i < kills; ++i) {
    std::ostringstream before;
    before << "timeout -s KILL " << seconds(random) << " ";
    job.run(before.str(), "");
  }
  job.finish();
}

TEST_P(CheckpointKills, AtAnyMomentLeaveTheNewestOrTheOneBefore) {
  KilledJob job(GetParam());
  kill_at_random(job, 40, 0.3);
}

TEST_P(CheckpointKills, SlowThousandAtAnyMoment) {
  KilledJob job(GetParam());
  kill_at_random(job, 500, 0.3);
}

#ifdef LOCKSTEP_MPIEXEC
TEST(CheckpointKillsMpi, OfOneRankLeaveTheNewestOrTheOneBefore) {
  KilledJob job(false, LOCKSTEP_MPIEXEC " --bind-to none -np 2");
  for (const int rank : {0, 1})
    for (const int number : {1, 3, 12}) {
      const auto result = job.run(
          "", " --kill-rank " + std::to_string(rank) + " --kill-at " + std::to_string(number));
      EXPECT_NE(result.exit_code, 0) << rank << " " << number;
      EXPECT_LT(result.seconds, 15) << result.output;
    }
  job.finish();
}
#endif

}  // namespace
}  // namespace lockstep
