#include "comm/session/cpu_quota.hpp"

#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "support/temporary_folder.hpp"

namespace lockstep::comm {
namespace {

/// A tree of control groups, and a process in it.
class CpuQuotaTest : public ::testing::Test {
 protected:
  void write(const std::string& file, const std::string& text) {
    const std::filesystem::path path = folder_.path() / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << '\n';
  }
  double cores() const {
    const auto quota = cpu_quota(folder_.path() / "cgroup", folder_.path() / "self");
    return quota ? quota->cores : 0;
  }

  lockstep::testing::TemporaryFolder folder_;
};

TEST_F(CpuQuotaTest, IsThatOfTheProcessGroup) {
  write("self", "0::/job/step");
  write("cgroup/job/step/cpu.max", "250000 100000");
  EXPECT_DOUBLE_EQ(cores(), 2.5);
}

TEST_F(CpuQuotaTest, IsTheLeastOfAllGroupsAbove) {
  write("self", "0::/job/step");
  write("cgroup/job/step/cpu.max", "max 100000");
  write("cgroup/job/cpu.max", "150000 50000");
  write("cgroup/cpu.max", "800000 100000");
  EXPECT_DOUBLE_EQ(cores(), 3);
}

// A container sees its own group as the root, whatever the path says.
TEST_F(CpuQuotaTest, IsFoundInAContainer) {
  write("self", "0::/");
  write("cgroup/cpu.max", "200000 100000");
  EXPECT_DOUBLE_EQ(cores(), 2);
  write("self", "0::/system.slice/docker-1234.scope");
  EXPECT_DOUBLE_EQ(cores(), 2);
}

TEST_F(CpuQuotaTest, IsReadInTheOldFormToo) {
  write("self", "12:memory:/docker/1\n4:cpu,cpuacct:/docker/1");
  write("cgroup/cpu,cpuacct/docker/1/cpu.cfs_quota_us", "50000");
  write("cgroup/cpu,cpuacct/docker/1/cpu.cfs_period_us", "100000");
  write("cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1");
  write("cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000");
  EXPECT_DOUBLE_EQ(cores(), 0.5);
}

TEST_F(CpuQuotaTest, IsNoneWhereNothingLimitsTheProcess) {
  EXPECT_EQ(cores(), 0);  // no such files
  write("self", "0::/job\nmalformed");
  write("cgroup/job/cpu.max", "max 100000");
  EXPECT_EQ(cores(), 0);
}

TEST_F(CpuQuotaTest, TellsGroupsApart) {
  write("cgroup/one/cpu.max", "100000 100000");
  write("cgroup/two/cpu.max", "100000 100000");
  const auto group_of = [&](const std::string& path) {
    write("self", "0::" + path);
    return cpu_quota(folder_.path() / "cgroup", folder_.path() / "self")->group;
  };
  EXPECT_NE(group_of("/one"), group_of("/two"));
  EXPECT_EQ(group_of("/one"), group_of("/one/below"));
}

}  // namespace
}  // namespace lockstep::comm
