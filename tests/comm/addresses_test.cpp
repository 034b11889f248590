#include "comm/tcp/addresses.hpp"

#include <cstdlib>
#include <deque>
#include <sstream>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include "comm/tcp/socket.hpp"

namespace lockstep::comm::tcp {
namespace {

/// A host's interfaces, as getifaddrs lists them.
class Host {
 public:
  Host& with(const char* interface, const char* address, unsigned flags = IFF_UP | IFF_RUNNING) {
    sockaddr_in6& room = addresses_.emplace_back();
    auto& narrow = reinterpret_cast<sockaddr_in&>(room);
    if (inet_pton(AF_INET, address, &narrow.sin_addr) == 1) {
      narrow.sin_family = AF_INET;
    } else {
      room.sin6_family = AF_INET6;
      inet_pton(AF_INET6, address, &room.sin6_addr);
    }
    names_.emplace_back(interface);
    ifaddrs& entry = entries_.emplace_back();
    entry.ifa_name = names_.back().data();
    entry.ifa_flags = flags;
    entry.ifa_addr = reinterpret_cast<sockaddr*>(&room);
    if (entries_.size() > 1) entries_[entries_.size() - 2].ifa_next = &entry;
    return *this;
  }
  std::string best(std::string_view default_interface = "") const {
    return best_address(first(), default_interface);
  }
  std::optional<std::string> of(std::string_view interface) const {
    return address_of_interface(first(), interface);
  }

 private:
  const ifaddrs* first() const { return entries_.empty() ? nullptr : &entries_.front(); }

  std::deque<sockaddr_in6> addresses_;
  std::deque<std::string> names_;
  std::deque<ifaddrs> entries_;
};

TEST(BestAddress, IsThatOfTheFirstNetwork) {
  EXPECT_EQ(Host()
                .with("lo", "127.0.0.1", IFF_UP | IFF_RUNNING | IFF_LOOPBACK)
                .with("docker0", "172.17.0.1")
                .with("eth0", "10.0.0.5")
                .with("eth1", "10.1.0.5")
                .best(),
            "10.0.0.5");
}

TEST(BestAddress, NeedsAnInterfaceWithACarrier) {
  EXPECT_EQ(Host().with("eth0", "192.168.70.5", IFF_UP).with("eth1", "10.1.0.5").best(),
            "10.1.0.5");
  EXPECT_EQ(Host().with("eth0", "192.168.70.5", IFF_RUNNING).best(), "");
  EXPECT_EQ(Host().best(), "");
}

TEST(BestAddress, IsOneThatTheHostGaveItselfOnlyWithoutAnother) {
  EXPECT_EQ(Host().with("usb0", "169.254.3.1").with("eth0", "10.0.0.5").best(), "10.0.0.5");
  EXPECT_EQ(Host().with("usb0", "169.254.3.1").with("eth0", "2001:db8::5").best(), "2001:db8::5");
  EXPECT_EQ(Host().with("eth0", "fe80::1").with("usb0", "169.254.3.1").best(), "169.254.3.1");
}

// OpenShift's hosts have their address on a bridge of Open vSwitch.
TEST(BestAddress, IsThatOfTheDefaultRoutesInterface) {
  Host host;
  host.with("eth0", "10.0.0.5").with("br-ex", "fe80::1").with("br-ex", "192.168.7.5");
  EXPECT_EQ(host.best("br-ex"), "192.168.7.5");
  EXPECT_EQ(host.best("eth0"), "10.0.0.5");
  EXPECT_EQ(host.best("gone"), "10.0.0.5");
  EXPECT_EQ(host.with("eth1", "fe80::2").best("eth1"), "10.0.0.5");
  EXPECT_EQ(Host().with("eth0", "10.0.0.5").with("ib0", "2001:db8::5").best("ib0"), "2001:db8::5");
}

std::string default_of(const std::string& ipv4, const std::string& ipv6 = "") {
  std::istringstream ipv4_routes(
      "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n" +
      ipv4);
  std::istringstream ipv6_routes(ipv6);
  return default_interface(ipv4_routes, ipv6_routes);
}

TEST(DefaultInterface, IsThatOfTheRouteOfLeastMetric) {
  const std::string zeros(32, '0');
  const std::string net = "eth1\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0\n";
  const std::string wlan = "wlan0\t00000000\t0100A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n";
  const std::string bridge = "br-ex\t00000000\t0107A8C0\t0003\t0\t0\t48\t00000000\t0\t0\t0\n";
  const std::string six =
      zeros + " 00 " + zeros + " 00 fe800000000000000000000000000001 00000400 1 0 00000003 eth6\n";
  const std::string none =
      zeros + " 00 " + zeros + " 00 " + zeros + " ffffffff 1 0 00200200       lo\n";
  EXPECT_EQ(default_of(net + wlan + bridge), "br-ex");
  EXPECT_EQ(default_of(wlan, six), "wlan0");
  EXPECT_EQ(default_of(net, none + six), "eth6");
  EXPECT_EQ(default_of(net, none), "");
  EXPECT_EQ(default_of("nonsense\n", "nonsense"), "");
}

TEST(AddressOfInterface, IsThatOfTheNameGiven) {
  Host host;
  host.with("lo", "127.0.0.1")
      .with("ib0", "fe80::1")
      .with("ib0", "2001:db8::7")
      .with("ib0", "10.2.0.5")
      .with("ib1", "fe80::2")
      .with("eth0", "2001:db8::5");
  EXPECT_EQ(host.of("ib0"), "10.2.0.5");
  EXPECT_EQ(host.of("eth0"), "2001:db8::5");
  EXPECT_EQ(host.of("ib1"), "");
  EXPECT_EQ(host.of("ib"), std::nullopt);
  EXPECT_EQ(host.of("10.2.0.5"), std::nullopt);
}

TEST(ReachableAddress, MayBeChosenByAnInterfacesName) {
  setenv("LOCKSTEP_ADDRESS", "lo", 1);
  const std::string by_name = reachable_address();
  setenv("LOCKSTEP_ADDRESS", "10.9.8.7", 1);
  const std::string by_address = reachable_address();
  unsetenv("LOCKSTEP_ADDRESS");
  EXPECT_TRUE(is_loopback(by_name)) << by_name;
  EXPECT_EQ(by_address, "10.9.8.7");
}

}  // namespace
}  // namespace lockstep::comm::tcp
