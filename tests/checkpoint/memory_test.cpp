// What checkpoints take of a rank's memory, beside what training takes.

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "support/mpi_environment.hpp"
#include "support/process.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep {
namespace {

#ifdef LOCKSTEP_MPIEXEC

constexpr int ranks = 2;
constexpr std::int64_t state_mib = 96;  // of checkpoint_memory_job

/// Of the rank that takes the most, in MiB.
std::int64_t peak_of(const std::string& mode, const std::string& folder) {
  const auto result =
      testing::run_command(LOCKSTEP_MPIEXEC " --bind-to none -np " + std::to_string(ranks) +
                           " " LOCKSTEP_CHECKPOINT_MEMORY_JOB " " + mode + " " + folder);
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(testing::occurrences(result.output, "peak "), ranks) << result.output;
  std::istringstream lines(result.output);
  std::int64_t peak = 0;
  std::string word;
  for (std::int64_t mib = 0; lines >> word >> mib;) peak = std::max(peak, mib);
  return peak;
}

TEST(CheckpointMemoryMpi, OfSavesAndLoadsIsARanksOwnShareAndLittleMore) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer keeps memory of its own";
#endif
  const testing::TemporaryFolder folder;
  const std::string run = (folder / "run").string();
  const std::int64_t plain = peak_of("plain", run), saving = peak_of("save", run),
                     loading = peak_of("load", run);
  const std::int64_t most = plain + state_mib / ranks + 64;
  EXPECT_GT(plain, state_mib);
  EXPECT_LE(saving, most) << "training takes " << plain;
  EXPECT_LE(loading, most) << "training takes " << plain;
  RecordProperty("plain", static_cast<int>(plain));
  RecordProperty("saving", static_cast<int>(saving));
  RecordProperty("loading", static_cast<int>(loading));
}

#endif

}  // namespace
}  // namespace lockstep
