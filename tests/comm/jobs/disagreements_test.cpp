// Jobs of which a rank means something else than the others: every rank ends, soon and not as if
// all were well, and one message names the rank and shows both.

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <tuple>

#include "comm/jobs/disagreement_kinds.hpp"
#include "comm/jobs/jobs.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::testing {
namespace {

/// Runs a job whose ranks write down how they ended.
class MpiDisagreement : public ::testing::TestWithParam<std::tuple<const char*, Disagreement>> {
 protected:
  static constexpr int ranks = 3;

  // mpirun ends what is left once one rank has failed. What it started are shells here, and ranks
  // out of its reach: they have to end by themselves.
  CommandResult job(const std::string& mode, const std::string& device,
                    const std::string& backend) const {
    const std::string script = (folder_.path() / "rank.sh").string();
    std::ofstream(script) << program << " \"$@\"\necho $? >" << folder_.path().string()
                          << "/$OMPI_COMM_WORLD_RANK\n";
    return run_command("JOB_COMM=" + backend + " " LOCKSTEP_MPIEXEC " --bind-to none -np " +
                       std::to_string(ranks) + " setsid --fork --wait sh " + script + " " + mode +
                       " --device " + device);
  }
  /// 0: the rank has not ended so soon.
  int exit_code_of(int rank) const {
    int code = 0;
    const auto name = folder_.path() / std::to_string(rank);
    for (int i = 0; i < 50 * timeout_multiplier && !(std::ifstream(name) >> code); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return code;
  }

 private:
  TemporaryFolder folder_;
};

TEST_P(MpiDisagreement, EndsEveryRankSoonAndIsToldOnce) {
  const auto& [backend, what] = GetParam();
  const std::string device = backend == std::string("nccl") ? "cuda" : "cpu";
  if (const std::string reason = missing(device, ranks); !reason.empty()) GTEST_SKIP() << reason;
  const auto result = job(what.mode, device, backend);
  EXPECT_NE(result.exit_code, 0) << result.output;
  for (int rank = 0; rank < ranks; ++rank)
    EXPECT_NE(exit_code_of(rank), 0) << rank << ": " << result.output;
  EXPECT_LT(seconds_after_event(result), 5 * timeout_multiplier) << result.output;
  EXPECT_EQ(lines_of_errors(result.output), 1) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr(what.rank_1), HasSubstr(what.others)));
}
std::string name_of(const ::testing::TestParamInfo<MpiDisagreement::ParamType>& info) {
  std::string name = std::string(std::get<1>(info.param).mode) + "_" + std::get<0>(info.param);
  std::ranges::replace(name, '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(OnProcessors, MpiDisagreement,
                         ::testing::Combine(::testing::Values("shm", "mpi", "tcp"),
                                            ::testing::ValuesIn(disagreements)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(OnGpus, MpiDisagreement,
                         ::testing::Combine(::testing::Values("nccl"),
                                            ::testing::ValuesIn(disagreements)),
                         name_of);

}  // namespace
}  // namespace lockstep::testing
