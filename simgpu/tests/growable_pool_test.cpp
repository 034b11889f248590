#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/lockstep.hpp"
#include "support/process.hpp"
#include "support/temporary_folder.hpp"

// LOCKSTEP_POOL=growable on devices that can and cannot.

namespace simgpu {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// What the tests below run in a process of its own, as the choice of a pool is one for a process.
TEST(GrowablePoolProcess, Trains) {
  namespace ls = lockstep;
  const ls::Device gpu = ls::cuda(0);
  const ls::Tensor x = ls::randn({64, 32}).to(gpu);
  ls::Tensor w = ls::randn({32, 32}).to(gpu);
  w.set_requires_grad(true);
  for (int i = 0; i < 3; ++i) {
    ls::square(ls::matmul(x, w)).mean().backward();
    const ls::Tensor wide = ls::zeros({std::int64_t{2} << 20}).to(gpu);  // 8 MiB
    EXPECT_GE(ls::memory_allocated(gpu), wide.nbytes());
  }
  ls::empty_cache(gpu);
  EXPECT_GT(ls::memory_reserved(gpu), 0u);
}

struct Outcome {
  lockstep::testing::CommandResult result;
  std::string reached;
};

Outcome train_with(const std::string& settings) {
  const lockstep::testing::TemporaryFolder folder;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  Outcome outcome;
  outcome.result = lockstep::testing::run_command(
      settings + " LOCKSTEP_SIM_COVERAGE=" + (folder / "reached").string() + " " + program +
      " --gtest_filter=GrowablePoolProcess.Trains");
  outcome.reached = lockstep::testing::read_file(folder / "reached");
  return outcome;
}

TEST(GrowablePool, PutsPagesOfTheDeviceWhereTheyAreNeeded) {
  const Outcome outcome = train_with("LOCKSTEP_POOL=growable");
  EXPECT_EQ(outcome.result.exit_code, 0) << outcome.result.output;
  EXPECT_THAT(outcome.reached, HasSubstr("call cuMemMap\n"));
  EXPECT_THAT(outcome.reached, HasSubstr("call cuMemUnmap\n"));
  EXPECT_THAT(outcome.result.output, Not(HasSubstr("instead of")));
}

TEST(GrowablePool, IsTheCachingOneByNameWhereTheDeviceHasNoVirtualMemory) {
  // 801: not supported
  for (const std::string call : {"cuDeviceGetAttribute", "cudaGetDriverEntryPointByVersion"}) {
    const Outcome outcome =
        train_with("LOCKSTEP_POOL=growable LOCKSTEP_SIM_FAULT=" + call + ":1:801");
    EXPECT_EQ(outcome.result.exit_code, 0) << outcome.result.output;
    EXPECT_THAT(outcome.result.output, HasSubstr("is \"caching\" instead of \"growable\""));
    EXPECT_THAT(outcome.reached, Not(HasSubstr("call cuMemMap\n")));
  }
}

}  // namespace
}  // namespace simgpu
