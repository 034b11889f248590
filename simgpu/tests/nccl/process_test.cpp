#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

namespace simgpu {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Ranks as processes, each with its standard error in a file.
class NcclProcesses : public ::testing::Test {
 protected:
  NcclProcesses() {
    std::string pattern = std::filesystem::temp_directory_path() / "simgpu-nccl-XXXXXX";
    if (mkdtemp(pattern.data())) folder_ = pattern;
  }
  ~NcclProcesses() override { std::filesystem::remove_all(folder_); }

  /// Exit codes of the ranks; of one that a signal ended, the signal's number + 128.
  std::vector<int> run(const std::string& scenario, int size,
                       const std::vector<std::string>& environment = {}) {
    std::vector<pid_t> processes;
    for (int rank = 0; rank < size; ++rank)
      processes.push_back(start(scenario, rank, size, environment));
    std::vector<int> codes;
    for (const pid_t process : processes) {
      int status = -1;
      waitpid(process, &status, 0);
      codes.push_back(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
    }
    return codes;
  }

  std::string output(int rank) const {
    std::ostringstream text;
    text << std::ifstream(output_file(rank)).rdbuf();
    return text.str();
  }

 private:
  std::string output_file(int rank) const { return folder_ + "/" + std::to_string(rank); }

  pid_t start(const std::string& scenario, int rank, int size,
              const std::vector<std::string>& environment) {
    const std::string number = std::to_string(rank), count = std::to_string(size),
                      file = folder_ + "/id", errors = output_file(rank);
    const pid_t process = fork();
    if (process != 0) return process;
    for (const std::string& entry : environment) putenv(const_cast<char*>(entry.c_str()));
    dup2(open(errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
    execl(LOCKSTEP_RANK_PROGRAM, "rank_program", scenario.c_str(), number.c_str(), count.c_str(),
          file.c_str(), nullptr);
    _exit(127);
  }

  std::string folder_;
};

TEST_F(NcclProcesses, MeetInSharedMemory) {
  EXPECT_THAT(run("work", 2), Each(0)) << output(0) << output(1);
}

TEST_F(NcclProcesses, MeetInSharedMemoryByFour) {
  EXPECT_THAT(run("work", 4), Each(0)) << output(0) << output(3);
}

TEST_F(NcclProcesses, MeetOverIpv6) {
  std::ostringstream addresses;
  addresses << std::ifstream("/proc/net/if_inet6").rdbuf();
  if (addresses.str().find(std::string(31, '0').append("1 ")) == std::string::npos)
    GTEST_SKIP() << "no IPv6 loopback on this machine";
  EXPECT_THAT(run("work", 3, {"LOCKSTEP_SIM_NCCL_TRANSPORT=tcp", "LOCKSTEP_ADDRESS=::1"}), Each(0))
      << output(0) << output(1) << output(2);
}

TEST_F(NcclProcesses, MeetOverTcp) {
  EXPECT_THAT(run("work", 3, {"LOCKSTEP_SIM_NCCL_TRANSPORT=tcp"}), Each(0))
      << output(0) << output(1) << output(2);
}

TEST_F(NcclProcesses, LearnOfTheDeathOfAPeer) {
  EXPECT_THAT(run("death", 3), ElementsAre(0, 0, 137)) << output(0) << output(1);
}

TEST_F(NcclProcesses, LearnOfTheDeathOfAPeerOverTcp) {
  EXPECT_THAT(run("death", 3, {"LOCKSTEP_SIM_NCCL_TRANSPORT=tcp"}), ElementsAre(0, 0, 137))
      << output(0) << output(1);
}

TEST_F(NcclProcesses, OneOfThemReportsAMismatch) {
  EXPECT_THAT(run("mismatch", 2), ElementsAre(66, 0));
  EXPECT_THAT(output(0), HasSubstr("communicator of 2 ranks disagrees: rank 0: AllReduce #0 f32 x "
                                   "4 sum; rank 1: AllReduce #0 f32 x 5 sum\n"));
  EXPECT_THAT(output(1), Not(HasSubstr("disagrees")));
}

TEST_F(NcclProcesses, SayWhoDoesNotCome) {
  EXPECT_THAT(run("absence", 2, {"LOCKSTEP_SIM_COLLECTIVE_WARN_MS=100"}), Each(0));
  EXPECT_THAT(output(0), HasSubstr("rank 0: AllReduce #0 f32 x 1 sum; rank 1: has not come"));
  EXPECT_THAT(output(1), Not(HasSubstr("waits")));
}

TEST_F(NcclProcesses, ReportCommunicatorsThatAreNeverDestroyed) {
  EXPECT_THAT(run("forgotten", 2, {"LOCKSTEP_SIM_LEAKS=1"}), Each(66));
  EXPECT_THAT(output(1), HasSubstr("communicator of 2 ranks"));
}

}  // namespace
}  // namespace simgpu
