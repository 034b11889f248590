#include "comm/bootstrap/host_identity.hpp"

#include <array>

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep::comm {
namespace {

Peer peer(const std::string& host, const std::string& machine, const std::string& network) {
  return {.host = host, .pid = 1, .machine = machine, .network = machine + network};
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
  for (const char* text : {"", "1", "1\n", "1\nmachine", "1\nmachine\nnetwork", "x\nm\nn\nh"})
    EXPECT_THROW(parse_peer(text), CorruptData) << text;
}

// What a container of its own does to a process: it keeps its name here.
TEST(HostIdentity, IsAnotherInAnotherNetworkNamespace) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) _exit(1);
    const std::string text = to_text(describe_this_process());
    _exit(write(ends[1], text.data(), text.size()) > 0 ? 0 : 2);
  }
  close(ends[1]);
  int status = -1;
  waitpid(child, &status, 0);
  std::string text(4096, '\0');
  const ssize_t length = read(ends[0], text.data(), text.size());
  close(ends[0]);
  if (WEXITSTATUS(status) == 1) GTEST_SKIP() << "no namespaces may be made here";
  ASSERT_GT(length, 0);
  const Peer inside = parse_peer(text.substr(0, static_cast<std::size_t>(length)));
  const Peer own = describe_this_process();
  EXPECT_EQ(inside.host, own.host);
  EXPECT_EQ(inside.machine, own.machine);
  EXPECT_NE(inside.network, own.network);
}

}  // namespace
}  // namespace lockstep::comm
