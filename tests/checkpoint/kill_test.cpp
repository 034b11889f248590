#include <cerrno>
#include <csignal>
#include <filesystem>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/user.h>

#include "checkpoint/traced_job.hpp"
#include "lockstep/checkpoint/folder.hpp"
#include "support/machine_load.hpp"
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
  /// @param how it saves, as options of the job. @param launcher such as "mpirun -np 2".
  explicit KilledJob(std::string how, std::string launcher = {})
      : launcher_(std::move(launcher)), how_(std::move(how)) {
    const auto whole = run_command(command(folder_ / "reference", steps), 120);
    EXPECT_EQ(whole.exit_code, 0) << whole.output;
    reference_ = parse(whole.output);
    reference_.hashes[0] = reference_.resumed_hash;
  }

  /// Runs it until it dies by `how`; checks what it went on from.
  testing::CommandResult run(const std::string& before, const std::string& behind) {
    auto result = run_command(before + command(folder_ / "run", steps) + behind, 60);
    const Told told = parse(result.output);
    EXPECT_EQ(result.output.find("orphan"), std::string::npos)
        << "what the save before left is not cleaned up: " << result.output;
    if (told.resumed >= 0) {
      EXPECT_GE(told.resumed, saved_) << "a checkpoint that was durable is lost";
      EXPECT_EQ(told.resumed_hash, reference_.hashes[told.resumed]) << told.resumed;
    }
    saved_ = std::max(saved_, told.saved);
    if (saved_ > steps - 10) start_anew();
    return result;
  }
  /// What there is must load, and go on with the same bits.
  void finish() {
    const auto last = run("", "");
    EXPECT_EQ(last.exit_code, 0) << last.output;
    const Told told = parse(last.output);
    EXPECT_GE(told.resumed, 0);
    for (const auto& [step, hash] : told.hashes) EXPECT_EQ(hash, reference_.hashes[step]) << step;
    for (const checkpoint::Found& each : checkpoint::list(folder_ / "run"))
      EXPECT_TRUE(checkpoint::verify(each.path).empty());
  }

  static constexpr std::int64_t steps = 60;

 private:
  std::string command(const std::filesystem::path& folder, std::int64_t to) const {
    return launcher_ + " " LOCKSTEP_CHECKPOINT_JOB " " + folder.string() + " " +
           std::to_string(to) + how_;
  }
  void start_anew() {
    std::filesystem::remove_all(folder_ / "run");
    saved_ = 0;
  }

  TemporaryFolder folder_;
  std::string launcher_, how_;
  Told reference_;
  std::int64_t saved_ = 0;
};

/// Options of the job.
const std::string under_new_names, over_the_same_name = " --same", beside = " --beside";

class CheckpointKills : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Names, CheckpointKills,
                         ::testing::Values(under_new_names, over_the_same_name),
                         [](const auto& how) {
                           return how.param.empty() ? "UnderNewNames" : "OverTheSameName";
                         });

void kill_at_calls(KilledJob& job, int every) {
  const auto kill_up_to = [&](int last) {
    for (int number = 1; number <= last; number += every)
      EXPECT_EQ(job.run("", " --kill-at " + std::to_string(number)).exit_code, 137) << number;
  };
  kill_up_to(120);  // those of the first three saves, the second and third being over others
  kill_up_to(8);    // those of a load, which notes that the checkpoint is whole
  job.finish();
}

TEST_P(CheckpointKills, AtEveryCallLeaveTheNewestOrTheOneBefore) {
  KilledJob job(GetParam());
  kill_at_calls(job, 1);
}

TEST_P(CheckpointKills, BesideTrainingLeaveTheNewestOrTheOneBefore) {
  KilledJob job(GetParam() + beside);
  kill_at_calls(job, 11);
}

TEST_P(CheckpointKills, SlowAtEveryCallBesideTrainingLeaveTheNewestOrTheOneBefore) {
  KilledJob job(GetParam() + beside);
  kill_at_calls(job, 1);
}

// A crash of the program runs handlers that a SIGKILL does not.
TEST_P(CheckpointKills, ByCrashesLeaveTheNewestOrTheOneBefore) {
  KilledJob job(GetParam());
  const std::string no_sanitizer_ends_it =
      "ASAN_OPTIONS=$ASAN_OPTIONS:handle_segv=0 TSAN_OPTIONS=$TSAN_OPTIONS:handle_segv=0 ";
  for (const int signal : {SIGSEGV, SIGABRT})
    for (const int number : {30, 47}) {
      const auto result = job.run(no_sanitizer_ends_it, " --by " + std::to_string(signal) +
                                                            " --kill-at " + std::to_string(number));
      EXPECT_EQ(result.exit_code, 128 + signal) << result.output;
    }
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

/// A job whose third save is traced, on the first two.
class TracedSave {
 public:
  using Hear = std::function<void(pid_t program, const testing::SystemCall& call)>;

  explicit TracedSave(std::string how)
      : how_(std::move(how)), steps_(how_.ends_with(beside) ? 4 : 3) {
    reference_ = parse(run_command(command("reference", steps_), 60).output);
    run_command(command("first", 2), 60);
  }
  /// Runs it, and sees what is there to go on from. @return nothing where that cannot be traced.
  std::optional<testing::TracedEnd> run(const Hear& hear) {
    namespace fs = std::filesystem;
    fs::remove_all(folder_ / "run");
    fs::copy(folder_ / "first", folder_ / "run", fs::copy_options::recursive);
    std::istringstream words(command("run", steps_) + " --mark 3");
    const std::vector<std::string> arguments{std::istream_iterator<std::string>(words), {}};
    const std::string output = (folder_ / "output").string();
    const testing::TracedEnd end = testing::trace(arguments, output, hear);
    if (end.is_forbidden) return std::nullopt;
    const Told told = parse(testing::read_file(output));
    EXPECT_EQ(told.resumed, 2);
    Told again = parse(run_command(command("run", steps_), 60).output);
    EXPECT_GE(again.resumed, std::max<std::int64_t>(2, told.saved)) << "a checkpoint is lost";
    EXPECT_EQ(again.resumed_hash, reference_.hashes[again.resumed]);
    for (std::int64_t step = again.resumed + 1; step <= steps_; ++step)
      EXPECT_EQ(again.hashes[step], reference_.hashes[step]) << step;
    return end;
  }

 private:
  std::string command(const std::string& name, int steps) const {
    return LOCKSTEP_CHECKPOINT_JOB " " + (folder_ / name).string() + " " + std::to_string(steps) +
           how_;
  }

  TemporaryFolder folder_;
  std::string how_;
  int steps_;
  Told reference_;
};

constexpr const char* forbidden = "ptrace is forbidden here";

// A kill of all threads before a system call, of whichever of them, is also one behind the call
// before it.
void kill_at_system_calls(const std::string& how) {
  TracedSave save(how);
  int number = 1;
  for (bool is_killed = true; is_killed; ++number) {
    SCOPED_TRACE("system call " + std::to_string(number));
    const auto end = save.run([&](pid_t program, const testing::SystemCall& call) {
      if (call.is_entry && call.number == number) ::kill(program, SIGKILL);
    });
    if (!end) GTEST_SKIP() << forbidden;
    is_killed = WIFSIGNALED(end->status);
    ASSERT_TRUE(is_killed || (WIFEXITED(end->status) && WEXITSTATUS(end->status) == 0));
  }
  EXPECT_GT(number, 50);
  std::cout << number - 1 << " system calls\n";
}

TEST_P(CheckpointKills, SlowAtEverySystemCallLeaveTheNewestOrTheOneBefore) {
  kill_at_system_calls(GetParam());
}

TEST_P(CheckpointKills, SlowAtEverySystemCallBesideTrainingLeaveTheNewestOrTheOneBefore) {
  kill_at_system_calls(GetParam() + beside);
}

#ifdef __x86_64__
const std::set<std::uint64_t> writes{SYS_write, SYS_pwrite64};
const std::set<std::uint64_t> file_calls{
    SYS_write,      SYS_pwrite64, SYS_fsync,     SYS_fdatasync, SYS_open,      SYS_openat,
    SYS_close,      SYS_rename,   SYS_renameat,  SYS_renameat2, SYS_mkdir,     SYS_mkdirat,
    SYS_unlink,     SYS_unlinkat, SYS_rmdir,     SYS_flock,     SYS_fallocate, SYS_ftruncate,
    SYS_getdents64, SYS_fstat,    SYS_newfstatat};

/// Changes a thread's registers.
void change(pid_t thread, const std::function<void(user_regs_struct&)>& how) {
  user_regs_struct registers{};
  ASSERT_EQ(::ptrace(PTRACE_GETREGS, thread, nullptr, &registers), 0);
  how(registers);
  ASSERT_EQ(::ptrace(PTRACE_SETREGS, thread, nullptr, &registers), 0);
}

// What the calls of the library are made to do by its own tests, done to those of the system.
void fail_system_calls(const std::string& how) {
  TracedSave save(how);
  constexpr int is_short = 0;
  for (const int error : {is_short, ENOSPC, EIO}) {
    const auto& calls = error == is_short ? writes : file_calls;
    int number = 1, failures = 0;
    for (bool has_failed = true; has_failed; ++number) {
      SCOPED_TRACE("error " + std::to_string(error) + " of call " + std::to_string(number));
      int seen = 0;
      pid_t failing = 0;
      has_failed = false;
      const auto end = save.run([&](pid_t, const testing::SystemCall& call) {
        if (call.is_entry && calls.contains(call.call) && ++seen == number) {
          has_failed = true;
          if (error != is_short) failing = call.thread;
          change(call.thread, [&](user_regs_struct& registers) {
            if (error == is_short)
              registers.rdx = std::max<std::uint64_t>(1, registers.rdx / 2);
            else
              registers.orig_rax = ~0ULL;  // no call at all
          });
        } else if (!call.is_entry && call.thread == failing) {
          failing = 0;
          change(call.thread, [&](user_regs_struct& registers) {
            registers.rax = static_cast<std::uint64_t>(-error);
          });
        }
      });
      if (!end) GTEST_SKIP() << forbidden;
      ASSERT_TRUE(WIFEXITED(end->status));
      if (WEXITSTATUS(end->status) != 0) ++failures;
    }
    std::cout << "error " << error << ": " << number - 2 << " calls, " << failures << " failures\n";
    EXPECT_GT(number, error == is_short ? 5 : 30);
    EXPECT_EQ(failures > 0, error != is_short);
  }
}

TEST_P(CheckpointKills, SlowNoFailingOrShortCallLosesWhatWasSaved) {
  fail_system_calls(GetParam());
}

TEST_P(CheckpointKills, SlowNoFailingOrShortCallBesideTrainingLosesWhatWasSaved) {
  fail_system_calls(GetParam() + beside);
}
#endif

#ifdef LOCKSTEP_MPIEXEC
const std::string two_ranks = LOCKSTEP_MPIEXEC " --bind-to none -np 2";

/// @return whether the job did not come to its end before.
bool kill_rank_at(KilledJob& job, int rank, int number) {
  const auto result =
      job.run("", " --kill-rank " + std::to_string(rank) + " --kill-at " + std::to_string(number));
  EXPECT_LT(result.seconds, 15 * testing::machine_load()) << result.output;
  return result.exit_code != 0;
}

TEST(CheckpointKillsMpi, OfOneRankLeaveTheNewestOrTheOneBefore) {
  KilledJob job(under_new_names, two_ranks);
  for (const int rank : {0, 1})
    for (const int number : {1, 3, 12}) EXPECT_TRUE(kill_rank_at(job, rank, number)) << number;
  job.finish();
}

// Also where the other rank trains on meanwhile, or is behind.
TEST(CheckpointKillsMpi, SlowOfOneRankAtEveryCallLeaveTheNewestOrTheOneBefore) {
  for (const std::string& how : {under_new_names, over_the_same_name + beside}) {
    KilledJob job(how, two_ranks);
    for (const int rank : {0, 1})
      for (int number = 1; number <= (rank == 0 ? 60 : 20); ++number)
        EXPECT_TRUE(kill_rank_at(job, rank, number)) << how << " " << rank << " " << number;
    job.finish();
  }
}

TEST(RanksDifferMpi, AStateThatOneRankAloneHasEndsTheJobByName) {
  const TemporaryFolder folder;
  const auto result =
      run_command(LOCKSTEP_MPIEXEC " --bind-to none -np 2 " LOCKSTEP_CHECKPOINT_JOB " " +
                      (folder / "run").string() + " 5 --other-state 1 2>&1",
                  60);
  EXPECT_NE(result.exit_code, 0);
  EXPECT_NE(result.output.find("'other' was added on rank 1 but not on rank 0"), std::string::npos)
      << result.output;
  EXPECT_EQ(result.output.find("saved 2"), std::string::npos);
  EXPECT_EQ(checkpoint::newest(folder / "run")->step, 1);
}
#endif

}  // namespace
}  // namespace lockstep
