#include "comm/bootstrap/host_identity.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep::comm {
namespace {

Peer peer(const std::string& host, const std::string& machine, const std::string& network) {
  return {.host = host,
          .pid = 1,
          .machine = machine,
          .network = machine + network,
          .processes = machine};
}

TEST(HostIdentity, TellsHostsOfOneNameApart) {
  const std::vector<Peer> peers{peer("worker", "a", "1"), peer("worker", "b", "1"),
                                peer("worker", "a", "1"), peer("worker", "a", "2"),
                                peer("worker", "b", "1")};
  const auto expect_place = [&](int rank, int local_rank, int local_size) {
    EXPECT_EQ(local_place(peers, rank).rank, local_rank) << rank;
    EXPECT_EQ(local_place(peers, rank).size, local_size) << rank;
  };
  expect_place(0, 0, 2);
  expect_place(1, 0, 2);
  expect_place(2, 1, 2);
  expect_place(3, 0, 1);
  expect_place(4, 1, 2);
}

TEST(HostIdentity, TravelsAsText) {
  const Peer own = describe_this_process();
  EXPECT_EQ(own.pid, getpid());
  const Peer again = parse_peer(to_text(own));
  EXPECT_EQ(again.host, own.host);
  EXPECT_EQ(again.pid, own.pid);
  EXPECT_EQ(again.machine, own.machine);
  EXPECT_EQ(again.network, own.network);
  EXPECT_EQ(again.processes, own.processes);
  for (const char* text :
       {"", "1", "1\n", "1\nmachine", "1\nmachine\nnetwork\nprocesses", "x\nm\nn\np\nh"})
    EXPECT_THROW(parse_peer(text), CorruptData) << text;
}

/// What a process says of itself in namespaces of its own, as a container has them; none if none
/// may be made here. @param forks whether they are those of a child's, as that of its pids is.
std::optional<Peer> describe_apart(int namespaces, bool forks) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) return std::nullopt;
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWUSER | namespaces) != 0) _exit(1);
    if (const pid_t inner = forks ? fork() : 0; inner != 0) {
      int status = -1;
      waitpid(inner, &status, 0);
      _exit(WEXITSTATUS(status));
    }
    const std::string text = to_text(describe_this_process());
    _exit(write(ends[1], text.data(), text.size()) > 0 ? 0 : 2);
  }
  close(ends[1]);
  int status = -1;
  waitpid(child, &status, 0);
  std::string text(4096, '\0');
  const ssize_t length = read(ends[0], text.data(), text.size());
  close(ends[0]);
  if (WEXITSTATUS(status) == 1) return std::nullopt;
  return parse_peer(text.substr(0, static_cast<std::size_t>(std::max<ssize_t>(length, 0))));
}

// What a container of its own does to a process: it keeps its name here.
TEST(HostIdentity, IsAnotherInAnotherNetworkNamespace) {
  const std::optional<Peer> inside = describe_apart(CLONE_NEWNET, false);
  if (!inside) GTEST_SKIP() << "no namespaces may be made here";
  const Peer own = describe_this_process();
  EXPECT_EQ(inside->host, own.host);
  EXPECT_EQ(inside->machine, own.machine);
  EXPECT_NE(inside->network, own.network);
  EXPECT_EQ(inside->processes, own.processes);
}

// Containers of one network, as those of a pod, may count processes of their own.
TEST(HostIdentity, TellsWhoKnowsWhomByItsPid) {
  const std::optional<Peer> inside = describe_apart(CLONE_NEWPID, true);
  if (!inside) GTEST_SKIP() << "no namespaces may be made here";
  const Peer own = describe_this_process();
  EXPECT_EQ(inside->pid, 1);
  EXPECT_EQ(inside->network, own.network);
  EXPECT_NE(inside->processes, own.processes);
}

}  // namespace
}  // namespace lockstep::comm
