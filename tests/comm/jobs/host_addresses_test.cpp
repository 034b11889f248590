// Hosts that have several addresses: which of them ranks meet and exchange data by.

#include <fstream>
#include <string>

#include "comm/jobs/jobs.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::testing {
namespace {

// Ranks that find each other by MASTER_ADDR, on two hosts of tests/support/hosts.sh: 10.98.0.1 and
// 10.98.0.2, interface e0.
class HostsWithSeveralAddresses : public ::testing::Test {
 protected:
  void SetUp() override {
    const int code = run_command(LOCKSTEP_HOSTS " 2 true").exit_code;
    if (code == 77) GTEST_SKIP() << "no namespaces for hosts here";
    ASSERT_EQ(code, 0);
  }
  /// Runs lines of a shell on the first host.
  CommandResult run(const std::string& lines) const {
    const std::string script = folder_ / "script.sh";
    std::ofstream(script) << "export WORLD_SIZE=2 MASTER_PORT=29500 LOCKSTEP_JOB_TOKEN=secret "
                             "JOB_COMM=tcp LOCKSTEP_JOIN_TIMEOUT=20\n"
                          << lines;
    return run_command(LOCKSTEP_HOSTS " 2 sh " + script);
  }
  static std::string rank(int number, const std::string& mode) {
    return "RANK=" + std::to_string(number) + " $HOSTS on " + std::to_string(number) + ' ' +
           program + ' ' + mode + " --device cpu";
  }

  TemporaryFolder folder_;
};

TEST_F(HostsWithSeveralAddresses, ExchangeDataByTheOneThatIsChosenBesideMasterAddr) {
  const auto result =
      run("export MASTER_ADDR=10.98.0.1\n"
          "for k in 0 1; do $HOSTS on $k ip addr add 10.97.0.$((k + 1))/24 dev e0; done\n"
          "LOCKSTEP_ADDRESS=10.97.0.2 " +
          rank(1, "idle") + " &\nLOCKSTEP_ADDRESS=10.97.0.1 " + rank(0, "idle") +
          " &\nleft=$!\n"
          "while kill -0 $left 2>/dev/null; do\n"  // established, as /proc tells addresses
          "  grep -qE ' 0100610A:[0-9A-F]+ 0200610A:[0-9A-F]+ 01 ' /proc/net/tcp && seen=1\n"
          "  sleep 0.05\ndone\nwait $left; code=$?; wait\necho \"seen: $seen\"\nexit $code\n");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(occurrences(result.output, "over tcp rank"), 2U) << result.output;
  EXPECT_THAT(result.output, HasSubstr("seen: 1"));
}

// Rank 0 finds its IPv6 address first, and the others reach only the other one.
TEST_F(HostsWithSeveralAddresses, MeetByIpv4WhereANameHasBothKinds) {
  const std::string hosts = folder_ / "hosts";
  std::ofstream(hosts) << "127.0.0.1 localhost\nfd98::1 headnode\n10.98.0.1 headnode\n";
  const auto result =
      run("export MASTER_ADDR=headnode\n"
          "ip addr add fd98::1/64 dev e0 nodad || { echo no IPv6 here; exit 77; }\n"
          "for k in 0 1; do $HOSTS on $k mount --bind " +
          hosts + " /etc/hosts; done\n" + rank(1, "sum") + " &\n" + rank(0, "sum") +
          "; code=$?; wait; exit $code\n");
  if (result.exit_code == 77) GTEST_SKIP() << result.output;
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(occurrences(result.output, "sum 1,"), 2U) << result.output;
}

}  // namespace
}  // namespace lockstep::testing
