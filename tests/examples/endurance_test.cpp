// What a training job does to its machine, and when its machine does something to it.

#include <chrono>
#include <csignal>
#include <future>
#include <thread>

#include "examples/jobs.hpp"

namespace examples::testing {
namespace {

using ::testing::HasSubstr;

/// A job of two ranks in the background, whose process ids become known.
class Job {
 public:
  explicit Job(const std::string& arguments) {
    // Each rank writes down its process id and becomes the program.
    const auto rank =
        folder_.write("rank.sh", std::string(settings) + "echo $$ > " + folder_.path().string() +
                                     "/pid.$OMPI_COMM_WORLD_RANK; exec " +
                                     tiny_gpt(arguments + " --log " + log().string()));
    result_ = std::async(std::launch::async, [this, rank] {
      return run_command(mpirun(2) + "sh " + rank.string(), 150);
    });
  }

  /// Waits until so many steps are in the log; false if the job ended before.
  bool wait_for_step(std::size_t step) {
    while (count_lines(log()) < step)
      if (result_.wait_for(std::chrono::milliseconds(5)) == std::future_status::ready) return false;
    return true;
  }
  /// Process id of a rank.
  int pid(int rank) const {
    return std::stoi(lockstep::testing::read_file(folder_ / ("pid." + std::to_string(rank))));
  }
  CommandResult wait() { return result_.get(); }

 private:
  std::filesystem::path log() const { return folder_ / "log.jsonl"; }

#if defined(__SANITIZE_ADDRESS__)
  // The checker holds freed memory back, 256 MB of it, which would pass for growth.
  static constexpr const char* settings =
      "export ASAN_OPTIONS=$ASAN_OPTIONS:quarantine_size_mb=1:thread_local_quarantine_size_kb=64; ";
#else
  static constexpr const char* settings = "";
#endif

  TemporaryFolder folder_;
  std::future<CommandResult> result_;
};

TEST(TrainGptJob, EndsSoonAndNamesTheRankThatWasKilledMpi) {
  Job job("--steps 1000000");
  ASSERT_TRUE(job.wait_for_step(50)) << job.wait().output;
  const auto start = std::chrono::steady_clock::now();
  ::kill(job.pid(1), SIGKILL);
  const CommandResult result = job.wait();
  EXPECT_LT(std::chrono::steady_clock::now() - start,
            std::chrono::seconds(10 * lockstep::testing::timeout_multiplier));
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.output, HasSubstr("[rank 0] error: rank 1 (host "));
  EXPECT_THAT(result.output, HasSubstr("was lost"));
}

/// What a process holds.
struct Holdings {
  std::ptrdiff_t descriptors = 0, threads = 0;
  double megabytes = 0;

  static Holdings of(int pid) {
    const std::filesystem::path process = "/proc/" + std::to_string(pid);
    const auto entries = [&](const char* name) {
      return std::distance(std::filesystem::directory_iterator(process / name), {});
    };
    Holdings holdings{entries("fd"), entries("task"), 0};
    std::ifstream status(process / "status");
    for (std::string word; status >> word;)
      if (word == "RssAnon:" && status >> holdings.megabytes) holdings.megabytes /= 1024;
    return holdings;
  }
};

TEST(TrainGptJob, HoldsNoMoreAfterTwoThousandStepsThanAfterTwoHundredMpi) {
  Job job("--steps 1000000");
  ASSERT_TRUE(job.wait_for_step(200)) << job.wait().output;
  const Holdings before[2] = {Holdings::of(job.pid(0)), Holdings::of(job.pid(1))};
  ASSERT_TRUE(job.wait_for_step(2200)) << job.wait().output;
  for (const int rank : {0, 1}) {
    const Holdings after = Holdings::of(job.pid(rank));
    EXPECT_EQ(after.descriptors, before[rank].descriptors) << "rank " << rank;
    EXPECT_EQ(after.threads, before[rank].threads) << "rank " << rank;
    EXPECT_LT(after.megabytes, before[rank].megabytes + 1) << "rank " << rank;
    EXPECT_GT(after.megabytes, 1);
  }
  ::kill(job.pid(1), SIGKILL);
  job.wait();
}

}  // namespace
}  // namespace examples::testing
