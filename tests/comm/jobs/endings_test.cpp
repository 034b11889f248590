// Programs that end in the middle: by an exception, an early return or std::exit, or because their
// process is gone, at each stage of a training.

#include <algorithm>
#include <iterator>
#include <tuple>

#include "comm/jobs/jobs.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::testing {
namespace {

constexpr const char* backends[]{"shm", "mpi", "tcp"};

/// @param stage of a job, see endings.cpp. @param way how it ends there. @param culprit -1: all
struct End {
  const char *stage, *way, *backend;
  int ranks, culprit;
  const char* device = "cpu";
};
std::ostream& operator<<(std::ostream& out, const End& end) {
  return out << end.stage << " by " << end.way << " of " << end.culprit << " in " << end.ranks
             << " ranks over " << end.backend << ", device " << end.device;
}

CommandResult start(const End& end, const std::string& way, const TemporaryFolder& folder) {
  return mpi_job(end.ranks, std::string("end-") + end.stage + " --device " + end.device,
                 std::string("JOB_COMM=") + end.backend + " JOB_ENDING=" + way + " JOB_CULPRIT=" +
                     std::to_string(end.culprit) + " JOB_FOLDER=" + folder.path().string());
}

/// A job that was saving goes on with the bits that it had when it saved last, or the time before.
CommandResult run(const End& end) {
  const TemporaryFolder folder;
  auto result = start(end, end.way, folder);
  if (end.stage != std::string("save")) return result;
  const auto again = start(end, "none", folder);
  EXPECT_EQ(again.exit_code, 0) << end << ": " << result.output << again.output;
  EXPECT_THAT(again.output, HasSubstr("goes on behind step ")) << end << ": " << result.output;
  return result;
}

/// Every rank ends alike, and the program's exit code is its own.
void expect_good_order(const End& end) {
  const auto result = run(end);
  EXPECT_EQ(result.exit_code, 0) << end << ": " << result.output;
  EXPECT_LT(seconds_after_event(result), 10 * timeout_multiplier) << end << ": " << result.output;
  for (const char* complaint : {"MPI_ABORT", "improperly", "error", "terminate called"})
    EXPECT_THAT(result.output, Not(HasSubstr(complaint))) << end;
}

/// One rank ends while the others train on: all end, and the message names it.
void expect_named_failure(const End& end) {
  const auto result = run(end);
  expect_quick_failure(result);
  const std::string rank = std::to_string(end.culprit), way = end.way;
  // Once rank 0 itself is gone, or kills what is left, it is for mpirun to say.
  const auto gone = AnyOf(HasSubstr("rank " + rank + " (host "), HasSubstr("process rank " + rank),
                          HasSubstr("PID"));
  if (way == "throw")
    EXPECT_THAT(result.output, HasSubstr("[rank " + rank + "] error: this is the end")) << end;
  else if (way == "exit3")
    EXPECT_THAT(result.output, HasSubstr("[rank " + rank + "] error: the program called std::exit"))
        << end;
  else if (way == "return" && end.stage == std::string("backward"))  // by an exception from there
    EXPECT_THAT(result.output,
                AnyOf(HasSubstr("rank " + rank + " left world"),
                      HasSubstr("rank " + rank + ": a backward failed: not computed")))
        << end;
  else if (way == "return" || way == "exit")
    EXPECT_THAT(result.output, HasSubstr("rank " + rank + " left world")) << end;
  else
    EXPECT_THAT(result.output, gone) << end;
}

constexpr const char* stages[]{"open-work", "between-steps", "forward", "backward", "captured",
                               "loader",    "averages",      "delayed", "save"};

// Each stage is ended in another way.
std::size_t index_of(const std::string& stage) {
  return static_cast<std::size_t>(std::find(std::begin(stages), std::end(stages), stage) -
                                  std::begin(stages));
}

class MpiEnding : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Stages, MpiEnding, ::testing::ValuesIn(stages));

TEST_P(MpiEnding, OfAllRanksByStdExitIsInGoodOrder) {
  expect_good_order({GetParam(), "exit", "shm", 2, -1});
}

TEST_P(MpiEnding, OfOneRankEndsAllAndNamesIt) {
  // Each way with another backend, and another rank.
  static constexpr const char* ways[]{"throw", "exit", "return", "exit3", "kill", "segv"};
  const std::size_t index = index_of(GetParam());
  const char* const way = GetParam() == std::string("save") ? "kill" : ways[index % 6];
  expect_named_failure({GetParam(), way, backends[index % 3], 3, static_cast<int>(index % 2) + 1});
}

class MpiEndingOnGpus : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string reason = missing("cuda", 2);
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
};
INSTANTIATE_TEST_SUITE_P(Stages, MpiEndingOnGpus, ::testing::ValuesIn(stages));

TEST_P(MpiEndingOnGpus, OfAllRanksByStdExitIsInGoodOrder) {
  expect_good_order({GetParam(), "exit", "nccl", 2, -1, "cuda"});
}

// Where the other rank launches on it gets ahead of its device, and waits for space in its queues.
TEST_P(MpiEndingOnGpus, OfOneRankEndsAllAndNamesIt) {
  static constexpr const char* ways[]{"throw", "exit", "return", "exit3", "kill", "segv"};
  const bool gets_ahead = index_of(GetParam()) >= index_of("averages");
  const char* const way = gets_ahead ? "return" : ways[index_of(GetParam()) % 6];
  expect_named_failure({GetParam(), way, "nccl", 2, 1, "cuda"});
}

// Open MPI may wait for the rank that is gone without a limit of its own, or not.
TEST(MpiJob, EndingBeforeTheSessionEndsAll) {
  for (const char* way : {"exit", "exit3"}) {
    const auto result =
        mpi_job(2, "end-before --device cpu",
                std::string("JOB_CULPRIT=1 LOCKSTEP_JOIN_TIMEOUT=4 JOB_ENDING=") + way);
    EXPECT_NE(result.exit_code, 0) << result.output;
    EXPECT_LT(result.seconds, 20 * timeout_multiplier) << result.output;
  }
}

TEST(TcpEnding, OfAllRanksByStdExitIsInGoodOrder) {
  const auto result = tcp_job(3, "end-delayed", "JOB_ENDING=exit JOB_CULPRIT=-1");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, Not(HasSubstr("error"))) << result.output;
}

TEST(TcpEnding, ByAnotherCodeThanZeroEndsAllWithIt) {
  const auto result = tcp_job(3, "end-loader", "JOB_ENDING=exit3");
  expect_quick_failure(result);
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(occurrences(result.output, "[rank 1] error: the program called std::exit(3)"), 1u)
      << result.output;
}

TEST(TcpEnding, ByReturnOfAnotherCodeThanZeroEndsAllWithIt) {
  const auto result = tcp_job(3, "end-loader", "JOB_ENDING=return3");
  expect_quick_failure(result);
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(occurrences(result.output, "[rank 1] error: the program returned 3"), 1u)
      << result.output;
}

TEST(MpiEnding, BehindASessionThatWasRefusedIsInGoodOrder) {
  const auto result = mpi_job(2, "again");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(occurrences(result.output, "refused: "), 2u) << result.output;
}

TEST(MpiEnding, OfAForkedProcessIsNoneOfTheJobs) {
  for (const char* backend : {"shm", "tcp"})
    for (const auto& [way, code] :
         {std::pair("return", 0), {"throw", 1}, {"exit3", 3}, {"term", -1}}) {
      const auto result =
          mpi_job(2, "end-child --device cpu",
                  detail::concat("JOB_CULPRIT=1 JOB_COMM=", backend, " JOB_ENDING=", way));
      EXPECT_EQ(result.exit_code, 0) << backend << " " << way << result.output;
      EXPECT_THAT(result.output, HasSubstr(detail::concat("the child ended with ", code)));
    }
}

// All stages, ways and backends, in jobs of two and three ranks.
using Backend = std::tuple<const char*, int>;
class SlowMpiEnding : public ::testing::TestWithParam<Backend> {};
INSTANTIATE_TEST_SUITE_P(Everywhere, SlowMpiEnding,
                         ::testing::Combine(::testing::ValuesIn(backends),
                                            ::testing::Values(2, 3)));

TEST_P(SlowMpiEnding, OfAllRanksIsInGoodOrder) {
  const auto [backend, ranks] = GetParam();
  for (const char* stage : stages)
    for (const char* way : {"return", "exit"}) expect_good_order({stage, way, backend, ranks, -1});
}

TEST_P(SlowMpiEnding, OfOneRankEndsAllAndNamesIt) {
  const auto [backend, ranks] = GetParam();
  for (const char* stage : stages)
    for (const char* way : {"throw", "return", "exit", "exit3", "kill", "segv", "abort"})
      for (int culprit = 0; culprit < ranks; ++culprit)
        expect_named_failure({stage, way, backend, ranks, culprit});
}

}  // namespace
}  // namespace lockstep::testing
