#include "comm/bootstrap/exchange_tree.hpp"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lockstep/comm/errors.hpp"
#include "support/timeout_multiplier.hpp"

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;
using ::testing::Each;
using ::testing::HasSubstr;

std::vector<Peer> peers_on(const std::vector<int>& hosts) {
  std::vector<Peer> peers;
  for (const int host : hosts) peers.emplace_back().network = std::to_string(host);
  return peers;
}

std::vector<int> hosts_of(int ranks, int ranks_of_a_host) {
  std::vector<int> hosts;
  for (int rank = 0; rank < ranks; ++rank) hosts.push_back(rank / ranks_of_a_host);
  return hosts;
}

TEST(TreePlace, OfARankIsBelowItsParentAndAllAreBelowRank0) {
  for (int ranks = 1; ranks <= 40; ++ranks)
    for (const int of_a_host : {1, 3, 8, 40}) {
      const auto peers = peers_on(hosts_of(ranks, of_a_host));
      int edges = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const TreePlace place(peers, rank);
        int below = 1;
        for (const int child : place.children()) {
          EXPECT_EQ(TreePlace(peers, child).parent(), rank);
          EXPECT_LT(TreePlace(peers, child).height(), place.height());
          below += place.count_below(child);
          ++edges;
        }
        EXPECT_TRUE(rank > 0 || below == ranks);
        EXPECT_EQ(place.is_root(), rank == 0);
      }
      EXPECT_EQ(edges, ranks - 1);
    }
}

TEST(TreePlace, OfRanksThatWereDealtOverHostsLeadsOnceToEach) {
  std::vector<int> hosts;
  for (int rank = 0; rank < 32; ++rank) hosts.push_back(rank % 4);
  const auto peers = peers_on(hosts);
  int between = 0;
  for (int rank = 1; rank < 32; ++rank) between += rank % 4 != TreePlace(peers, rank).parent() % 4;
  EXPECT_EQ(between, 3);
}

/// Ranks that are threads.
class ExchangeTrees : public ::testing::Test {
 protected:
  using Body = std::function<void(int rank, ExchangeTree& tree)>;

  // Of each pair of neighbours, the parent's end first.
  void run(const std::vector<int>& hosts, const Body& body) {
    const auto peers = peers_on(hosts);
    const int ranks = static_cast<int>(hosts.size());
    std::map<int, tcp::Socket> up, down;  // by the child
    for (int rank = 1; rank < ranks; ++rank) {
      int ends[2];
      ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
      down[rank] = tcp::Socket(ends[0]);
      up[rank] = tcp::Socket(ends[1]);
    }
    std::vector<std::unique_ptr<ExchangeTree>> trees;
    for (int rank = 0; rank < ranks; ++rank) {
      TreePlace place(peers, rank);
      ExchangeTree::Neighbour parent;
      if (rank > 0) parent = {place.parent(), std::move(up[rank])};
      std::vector<ExchangeTree::Neighbour> children;
      for (const int child : place.children()) children.push_back({child, std::move(down[child])});
      trees.push_back(
          std::make_unique<ExchangeTree>(place, std::move(parent), std::move(children)));
    }
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        auto tree = std::move(trees[static_cast<std::size_t>(rank)]);
        body(rank, *tree);
      });
    for (std::thread& thread : threads) thread.join();
  }

  // What one rank says of an exchange that fails; empty if it does not.
  static std::string failure_of(ExchangeTree& tree, milliseconds timeout,
                                tcp::Check check = tcp::check_nothing) {
    try {
      tree.exchange("x", timeout, check);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }
};

TEST_F(ExchangeTrees, GiveEachRankWhatAllGave) {
  for (const int ranks : {1, 2, 3, 7, 16, 33}) {
    std::vector<int> hosts;
    for (int rank = 0; rank < ranks; ++rank) hosts.push_back(rank * rank % 3);
    run(hosts, [&](int rank, ExchangeTree& tree) {
      for (const std::size_t size : {0, 10, 1'000'000}) {
        const auto given_by = [size](int other) {
          return std::string(other % 3 == 0 ? size : size / 2, static_cast<char>('a' + other));
        };
        const auto all =
            tree.exchange(given_by(rank), std::chrono::seconds(60), tcp::check_nothing);
        ASSERT_EQ(all.size(), hosts.size());
        for (int other = 0; other < ranks; ++other)
          EXPECT_TRUE(all[static_cast<std::size_t>(other)] == given_by(other)) << other;
      }
    });
  }
}

TEST_F(ExchangeTrees, NameARankThatIsGoneOnAllOthers) {
  constexpr int ranks = 13;
  for (int gone = 0; gone < ranks; ++gone) {
    std::vector<std::string> failures(ranks);
    const auto begin = tcp::Clock::now();
    run(hosts_of(ranks, 4), [&](int rank, ExchangeTree& tree) {
      if (rank != gone)
        failures[static_cast<std::size_t>(rank)] = failure_of(tree, std::chrono::seconds(60));
    });
    EXPECT_LT(tcp::Clock::now() - begin,
              std::chrono::seconds(5) * lockstep::testing::timeout_multiplier);
    failures.erase(failures.begin() + gone);
    EXPECT_THAT(failures, Each(HasSubstr("rank " + std::to_string(gone) + " closed")));
  }
}

// On a busy machine another rank's thread may be late, too, and is rightly named: then all wait
// longer.
TEST_F(ExchangeTrees, NameARankThatIsLateOnAllOthers) {
  constexpr int ranks = 13;
  for (const int late : {0, 1, 7, 8, 12}) {
    const auto failures_within = [&](milliseconds timeout) {
      std::vector<std::string> failures(ranks);
      std::atomic<int> ended = 0;
      run(hosts_of(ranks, 4), [&](int rank, ExchangeTree& tree) {
        if (rank != late) failures[static_cast<std::size_t>(rank)] = failure_of(tree, timeout);
        ++ended;
        while (ended < ranks) std::this_thread::sleep_for(milliseconds(5));
      });
      failures.erase(failures.begin() + late);
      return failures;
    };
    const ::testing::Matcher<std::vector<std::string>> name_it =
        Each(HasSubstr("rank " + std::to_string(late) + " sent nothing"));
    std::vector<std::string> failures = failures_within(milliseconds(300));
    if (!name_it.Matches(failures)) failures = failures_within(milliseconds(5000));
    EXPECT_THAT(failures, name_it);
  }
}

// Rank 0 knows of ranks that are not its neighbours.
TEST_F(ExchangeTrees, EndOnAllRanksWithWhatOneFindsElsewhere) {
  constexpr int ranks = 13;
  std::vector<std::string> failures(ranks);
  std::atomic<int> ended = 0;
  run(hosts_of(ranks, 4), [&](int rank, ExchangeTree& tree) {
    const auto check = [rank] { LOCKSTEP_CHECK(rank != 0, PeerFailure, "rank 11 is no more"); };
    if (rank != 11)
      failures[static_cast<std::size_t>(rank)] = failure_of(tree, std::chrono::seconds(60), check);
    ++ended;
    while (ended < ranks) std::this_thread::sleep_for(milliseconds(5));
  });
  failures.erase(failures.begin() + 11);
  EXPECT_THAT(failures, Each(HasSubstr("rank 11 is no more")));
}

TEST_F(ExchangeTrees, RefuseWhatIsNoMessageAndSayOfWhom) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  const tcp::Socket child(ends[1]);
  std::vector<ExchangeTree::Neighbour> children;
  children.push_back({1, tcp::Socket(ends[0])});
  ExchangeTree root(TreePlace(peers_on({0, 0}), 0), {}, std::move(children));
  const std::uint64_t announced[] = {4, 0};  // four bytes, where a part has at least eight
  ASSERT_EQ(send(child.descriptor(), announced, 12, 0), 12);
  EXPECT_THAT(failure_of(root, std::chrono::seconds(60)), HasSubstr("rank 1 sent what 0 ranks"));
  EXPECT_THAT(failure_of(root, std::chrono::seconds(60)), HasSubstr("rank 1 sent what 0 ranks"));
}

int free_port() { return tcp::local_endpoint(tcp::listen_on({tcp::loopback_address(), 0})).port; }

/// Makes the calling thread one of another host, as far as its name goes.
bool move_to_host(const std::string& name) {
  return unshare(CLONE_NEWUTS) == 0 && sethostname(name.data(), name.size()) == 0;
}

/// Bootstraps of threads, of which the odd ranks may be on another host. One goes away; returns
/// what the others say then.
std::vector<std::string> failures_after_an_exchange(int ranks, int gone, bool on_two_hosts) {
  BootstrapOptions options;
  options.port = free_port();
  options.size = ranks;
  if (on_two_hosts) options.token = "a token";
  std::vector<std::string> failures(static_cast<std::size_t>(ranks));
  std::atomic<int> ended = 0;
  const auto play = [&, options](int rank) mutable {
    options.rank = rank;
    EXPECT_TRUE(!on_two_hosts || rank % 2 == 0 || move_to_host("other"));
    auto bootstrap = make_bootstrap(options);
    EXPECT_EQ(bootstrap->is_one_host(), !on_two_hosts);
    const auto all = bootstrap->all_gather_bytes(std::to_string(rank), "numbers");
    for (std::size_t other = 0; other < all.size(); ++other)
      EXPECT_EQ(all[other], std::to_string(other));
    if (rank == gone) bootstrap.reset();
    try {
      if (bootstrap) bootstrap->barrier();
    } catch (const PeerFailure& error) {
      failures[static_cast<std::size_t>(rank)] = error.what();
    }
    ++ended;
    while (ended < ranks) std::this_thread::sleep_for(milliseconds(5));
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(play, rank);
  for (std::thread& thread : threads) thread.join();
  failures.erase(failures.begin() + gone);
  return failures;
}

TEST(TcpBootstrap, NamesARankThatIsGoneOnAllOthers) {
  EXPECT_THAT(failures_after_an_exchange(5, 3, false), Each(HasSubstr("rank 3 closed")));
}

TEST(TcpBootstrap, OfManyRanksOnHostsNamesARankThatIsGoneOnAllOthers) {
  bool is_allowed = false;
  std::thread([&] { is_allowed = move_to_host("other"); }).join();
  if (!is_allowed) GTEST_SKIP() << "only root can be on another host";
  setenv("LOCKSTEP_ADDRESS", "127.0.0.1", 1);
  EXPECT_THAT(failures_after_an_exchange(70, 37, true), Each(HasSubstr("rank 37 closed")));
  unsetenv("LOCKSTEP_ADDRESS");
}

}  // namespace
}  // namespace lockstep::comm
