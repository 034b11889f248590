#include "base/coverage.hpp"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/symbol_table.hpp"
#include "support/process.hpp"
#include "support/temporary_folder.hpp"

namespace simgpu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The variable is read once a process: this program, started again.
std::string covered_by(const std::string& tests, const std::string& more = "") {
  const lockstep::testing::TemporaryFolder folder;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command = "LOCKSTEP_SIM_COVERAGE=" + (folder / "reached").string() + " " +
                              more + " " + program + " --gtest_filter=" + tests;
  for (int runs = 0; runs < 2; ++runs) (void)lockstep::testing::run_command(command);
  return lockstep::testing::read_file(folder / "reached");
}

TEST(Coverage, NamesEachCallAndKernelOnceForEachProcess) {
  const std::string reached = covered_by("Kernels.MeetAtBarriers");
  EXPECT_EQ(lockstep::testing::occurrences(reached, "test_simgpu call cudaMalloc\n"), 2u);
  EXPECT_EQ(lockstep::testing::occurrences(reached, "test_simgpu call cudaLaunchKernelExC\n"), 2u);
  EXPECT_THAT(reached, HasSubstr("test_simgpu kernel _ZN6simgpu4test12_GLOBAL__N_1"));
}

TEST(Coverage, LosesNothingOfAProcessThatAborts) {
  EXPECT_THAT(covered_by("KernelFindings*", "LOCKSTEP_SIM_ON_FINDING=abort"),
              HasSubstr("test_simgpu call cudaLaunchKernelExC\n"));
}

void named_function() {}

TEST(SymbolTable, NamesFunctionsAndNothingElse) {
  EXPECT_THAT(mangled_names(reinterpret_cast<const void*>(&named_function)),
              ElementsAre("_ZN6simgpu12_GLOBAL__N_114named_functionEv"));
  EXPECT_THAT(mangled_names(nullptr), IsEmpty());
  int variable = 0;
  EXPECT_THAT(mangled_names(&variable), IsEmpty());
}

}  // namespace
}  // namespace simgpu
