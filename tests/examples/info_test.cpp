// What lockstep_info reports.

#include <sched.h>

#include "examples/jobs.hpp"

namespace examples::testing {
namespace {

using ::testing::HasSubstr;

TEST(LockstepInfo, ReportsBuildAndMachineAsText) {
  const auto result = run_command(command("lockstep_info", ""));
  EXPECT_EQ(result.exit_code, 0);
  for (const char* words : {"lockstep: ", "compiler: ", "zlib: ", "ops on the CPU: ", "cpu",
                            "kernels in use: ", "f16: 16 bits in memory, f32 inside, in every op",
                            "bf16: ", "memory: ", "GPUs: ", "launcher: none",
                            "threads: ", "/dev/shm: ", "rank 0: bound to processors "})
    EXPECT_THAT(result.output, HasSubstr(words));
}

TEST(LockstepInfo, ReportsTheSameAsJson) {
  const auto result = run_command(command("lockstep_info", "--json"));
  const auto report = nlohmann::json::parse(result.output);
  EXPECT_FALSE(report.at("build").at("lockstep").get<std::string>().empty());
  EXPECT_GE(report.at("process").at("threads").get<int>(), 1);
  EXPECT_TRUE(report.at("devices").at("GPUs").is_array());
  const auto& machine = report.at("machine");
  const auto compiled = machine.at("kernels compiled for").get<std::vector<std::string>>();
  EXPECT_THAT(compiled, ::testing::Contains(machine.at("kernels in use").get<std::string>()));
}

TEST(LockstepInfo, SaysIfTheDriverIsOlderThanTheRuntime) {
  const auto result =
      run_command("LOCKSTEP_SIM_FAULT=cudaGetDeviceCount:1:35 " + command("lockstep_info", ""));
  if (result.output.find("simulated") == std::string::npos) GTEST_SKIP() << "no simulated GPU";
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.output, HasSubstr("no GPU is used: the driver is for CUDA"));
  EXPECT_THAT(result.output, HasSubstr("update the driver"));
}

TEST(LockstepInfo, SpeaksOnceInAJobAndNamesItsLauncherMpi) {
  const auto result = run_command(mpirun(2) + command("lockstep_info", "--json"));
  ASSERT_EQ(result.exit_code, 0) << result.output;
  const auto report = nlohmann::json::parse(result.output);
  EXPECT_THAT(report.at("process").at("launcher").get<std::string>(), HasSubstr("mpirun"));
  EXPECT_THAT(report.at("build").at("MPI").get<std::string>(), HasSubstr("MPI"));
}

/// The first processor that this process may run on.
int own_processor() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  sched_getaffinity(0, sizeof mask, &mask);
  int processor = 0;
  while (processor < CPU_SETSIZE && !CPU_ISSET(processor, &mask)) ++processor;
  return processor;
}

TEST(LockstepInfo, ReportsTheBindingOfEveryRankMpi) {
  const std::string one = std::to_string(own_processor());
  const auto bound = run_command(mpirun(1) + command("lockstep_info", "--json") +
                                 " : -np 1 taskset -c " + one + " " + command("lockstep_info", ""));
  ASSERT_EQ(bound.exit_code, 0) << bound.output;
  const auto ranks = nlohmann::json::parse(bound.output).at("ranks");
  ASSERT_EQ(ranks.size(), 2u);
  EXPECT_THAT(ranks.at("rank 0").get<std::string>(), HasSubstr("bound to processors "));
  EXPECT_THAT(ranks.at("rank 1").get<std::string>(),
              HasSubstr("bound to processors " + one + " of "));
}

TEST(LockstepInfo, SaysThatAForcedInstructionSetIsMissing) {
  const auto result = run_command("LOCKSTEP_CPU_ISA=abacus " + command("lockstep_info", ""));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.output, HasSubstr("abacus"));
}

}  // namespace
}  // namespace examples::testing
