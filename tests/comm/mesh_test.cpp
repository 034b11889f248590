#include "comm/tcp/mesh.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "comm/connections.hpp"
#include "comm/groups.hpp"
#include "lockstep/comm/errors.hpp"
#include "lockstep/observe/log.hpp"
#include "support/timeout_multiplier.hpp"

namespace lockstep::comm::tcp {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// The connections of one rank.
class Node {
 public:
  explicit Node(int rank, milliseconds courtesy = {}, int size = 2)
      : plan_{rank, size, "127.0.0.1", "token", std::chrono::seconds(30), courtesy},
        listener_(listen_on({"127.0.0.1", 0})),
        endpoint_(local_endpoint(listener_).to_string()),
        wake_(eventfd(0, EFD_CLOEXEC)) {}
  const std::string& endpoint() const { return endpoint_; }
  Mesh& start(std::vector<std::string> endpoints) {
    return mesh_.emplace(plan_, std::move(listener_), std::move(endpoints), wake_);
  }
  Mesh::News news() {
    while (true) {
      pollfd entry{wake_.descriptor(), POLLIN, 0};
      if (poll(&entry, 1, 30'000) <= 0) return {.peer = -2};
      eventfd_t value;
      eventfd_read(wake_.descriptor(), &value);
      for (Mesh::News& news : mesh_->take()) return std::move(news);
    }
  }
  bool is_silent_for(int time) const {
    pollfd entry{wake_.descriptor(), POLLIN, 0};
    return poll(&entry, 1, time) == 0;
  }
  void stop() { mesh_.reset(); }

 private:
  MeshPlan plan_;
  Socket listener_;
  std::string endpoint_;
  Socket wake_;
  std::optional<Mesh> mesh_;
};

Handshake hello_of(int rank) { return {Purpose::data, "token", rank, 2}; }

Socket accepted_by(const Socket& listener) {
  while (true)
    if (auto socket = accept_from(listener)) return std::move(*socket);
}

bool carries(const Socket& from, const Socket& to) {
  const std::array sent{std::byte{1}, std::byte{2}};
  std::array<std::byte, 2> received{};
  return send_all(from, sent, soon()) && receive_all(to, received, soon()) && received == sent;
}

TEST(Mesh, ConnectionsOfBothSidesAtOnceBecomeOne) {
  for (int round = 0; round < 100; ++round) {
    Node low(0), high(1);
    const std::vector<std::string> endpoints{low.endpoint(), high.endpoint()};
    Mesh& low_mesh = low.start(endpoints);
    Mesh& high_mesh = high.start(endpoints);
    std::thread other([&] { high_mesh.want(0); });
    low_mesh.want(1);
    other.join();
    const Mesh::News at_low = low.news(), at_high = high.news();
    ASSERT_TRUE(at_low.socket && at_high.socket) << at_low.failure << at_high.failure;
    ASSERT_TRUE(carries(at_low.socket, at_high.socket) && carries(at_high.socket, at_low.socket));
  }
}

TEST(Mesh, TheConnectionOfTheLowerRankStays) {
  const Socket listener = listen_on({"127.0.0.1", 0});
  Node low(0);
  low.start({low.endpoint(), local_endpoint(listener).to_string()}).want(1);
  const Socket its = accepted_by(listener);
  const Socket own = connect_to(Endpoint::parse(low.endpoint()), soon());
  present(own, hello_of(1), soon());
  EXPECT_TRUE(low.is_silent_for(200));
  welcome(its);
  const Mesh::News news = low.news();
  ASSERT_TRUE(news.socket) << news.failure;
  std::array<std::byte, sizeof(HandshakeMessage)> hello;
  ASSERT_TRUE(receive_all(its, hello, soon()));
  EXPECT_TRUE(carries(news.socket, its));
  std::array<std::byte, 1> answer;
  EXPECT_FALSE(receive_all(own, answer, soon()));
}

TEST(Mesh, TheHigherRankGivesItsConnectionUpForTheLowerOnes) {
  const Socket listener = listen_on({"127.0.0.1", 0});
  Node high(1);
  high.start({local_endpoint(listener).to_string(), high.endpoint()}).want(0);
  const Socket its = accepted_by(listener);
  const Socket own = connect_to(Endpoint::parse(high.endpoint()), soon());
  present(own, hello_of(0), soon());
  const Mesh::News news = high.news();
  ASSERT_TRUE(news.socket) << news.failure;
  std::array<std::byte, sizeof(HandshakeMessage) + 1> until_end;
  EXPECT_FALSE(receive_all(its, until_end, soon()));
  std::array<std::byte, 1> answer;
  ASSERT_TRUE(receive_all(own, answer, soon()));
  EXPECT_TRUE(carries(news.socket, own));
}

// Both: nobody listens, or the process ends before it has answered.
TEST(Mesh, SaysThatAPeerIsGone) {
  for (const bool accepts : {false, true}) {
    Socket listener = listen_on({"127.0.0.1", 0});
    Node low(0);
    Mesh& mesh = low.start({low.endpoint(), local_endpoint(listener).to_string()});
    const std::string port = std::to_string(local_endpoint(listener).port);
    if (!accepts) listener.close();
    mesh.want(1);
    if (accepts) accepted_by(listener);
    const Mesh::News news = low.news();
    EXPECT_TRUE(news.is_gone) << accepts;
    EXPECT_THAT(news.failure, HasSubstr(accepts ? "closed its connection"
                                                : "refuses connections to 127.0.0.1 port " + port +
                                                      ": it has ended, or a firewall"));
  }
}

TEST(Mesh, EndsWhileAPeerConnects) {
  Node low(0), high(1);
  const std::vector<std::string> endpoints{low.endpoint(), high.endpoint()};
  high.start(endpoints).want(0);  // low's system answers, but nobody accepts
  low.start(endpoints);
  low.stop();
  const Mesh::News news = high.news();
  EXPECT_TRUE(news.is_gone || news.socket) << news.failure;
}

/// So many more files than are open may be opened, in a scope.
class FewFiles {
 public:
  explicit FewFiles(rlim_t more) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const Socket first_free(eventfd(0, EFD_CLOEXEC));
    const rlim_t most = static_cast<rlim_t>(first_free.descriptor()) + more;
    const rlimit few{std::min(most, before_.rlim_max), before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
  }
  FewFiles(const FewFiles&) = delete;
  FewFiles& operator=(const FewFiles&) = delete;
  ~FewFiles() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

// The system keeps connections that nobody has taken yet, also of who has gone.
TEST(Mesh, ManyStrangersAtOnceUseUpNoFiles) {
  Node low(0), high(1);
  for (int i = 0; i < 1000; ++i) connect_to(Endpoint::parse(low.endpoint()), soon());
  const std::vector<std::string> endpoints{low.endpoint(), high.endpoint()};
  const FewFiles limit(400);
  low.start(endpoints);
  high.start(endpoints).want(0);
  const Mesh::News news = low.news();
  EXPECT_TRUE(news.socket) << news.failure;
}

TEST(Mesh, ConnectsOnceThereAreFilesAgain) {
  Node low(0), high(1);
  const std::vector<std::string> endpoints{low.endpoint(), high.endpoint()};
  low.start(endpoints);
  Mesh& mesh = high.start(endpoints);
  {
    const FewFiles limit(0);
    mesh.want(0);
    EXPECT_TRUE(high.is_silent_for(300));
  }
  EXPECT_TRUE(high.news().socket);
  EXPECT_TRUE(low.news().socket);
}

TEST(Mesh, AcceptsOnceThereAreFilesAgain) {
  Node low(0);
  const Socket socket = connect_to(Endpoint::parse(low.endpoint()), soon());
  present(socket, hello_of(1), soon());
  {
    const FewFiles limit(1);  // its own, to be woken by
    low.start({low.endpoint(), low.endpoint()});
    EXPECT_TRUE(low.is_silent_for(300));
  }
  const Mesh::News news = low.news();
  EXPECT_TRUE(news.socket) << news.failure;
}

/// Ranks that are threads of this test.
class Transports : public ::testing::Test {
 protected:
  void connect(int ranks) {
    const MessagesOfThreads make(ranks, Messages::sockets);
    Exchange exchange(static_cast<std::size_t>(ranks));
    transports_.resize(static_cast<std::size_t>(ranks));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        transports_[static_cast<std::size_t>(rank)] =
            make(rank, [&](std::string_view own) { return exchange(rank, own); });
      });
    for (std::thread& thread : threads) thread.join();
  }
  host::Transport& of(std::size_t rank) { return *transports_[rank]; }
  void send(int from, int to) {
    host::Deadline deadline;
    deadline.set(host::Clock::now() + std::chrono::seconds(30));
    const std::byte data{};
    const std::array<host::Outgoing, 1> out{{{.peer = to, .data = {&data, 1}}}};
    of(static_cast<std::size_t>(from)).transfer(out, {}, {.deadline = &deadline});
  }
  // Rank 0 waits for a message of one byte.
  void receive_from(int peer, milliseconds limit = std::chrono::seconds(30)) {
    host::Deadline deadline;
    deadline.set(host::Clock::now() + limit);
    std::byte room{};
    std::array<host::Incoming, 1> in{{{.peer = peer, .room = {&room, 1}}}};
    of(0).transfer({}, in, {.deadline = &deadline});
  }
  std::vector<std::unique_ptr<host::Transport>> transports_;
};

TEST_F(Transports, NameTheRankThatSendsNothingInTime) {
  connect(3);
  try {
    receive_from(2, milliseconds(200));
    FAIL() << "no error";
  } catch (const host::TransferTimeout& timeout) {
    EXPECT_THAT(timeout.missing, ElementsAre(2));
  }
}

TEST_F(Transports, HearAnAbortOfARankTheyAreNotConnectedTo) {
  connect(4);
  std::thread other([&] {
    std::this_thread::sleep_for(milliseconds(100));
    of(3).abort("rank 3 has had enough");
  });
  try {
    receive_from(2);
    ADD_FAILURE() << "no error";
  } catch (const PeerFailure& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 3 has had enough"));
  }
  other.join();
}

// While they wait for another one, and also where they have seen that it sent something.
TEST_F(Transports, HearAnAbortBehindAMessageOnceTheyHaveReceivedIt) {
  connect(3);
  send(1, 0);
  EXPECT_THROW(receive_from(2, milliseconds(200)), host::TransferTimeout);
  of(1).abort("rank 1 has had enough");
  EXPECT_THROW(receive_from(2, milliseconds(200)), host::TransferTimeout);
  receive_from(1);
  EXPECT_THROW(receive_from(2), PeerFailure);
}

// Whoever looks on between its transfers.
TEST_F(Transports, HearAnAbortBetweenTransfers) {
  connect(2);
  send(1, 0);
  receive_from(1);
  EXPECT_NO_THROW(of(0).check());
  of(1).abort("rank 1 has had enough");
  EXPECT_THROW(of(0).check(), PeerFailure);
}

TEST_F(Transports, SeeARankThatLeavesBeforeTheyWereConnectedToIt) {
  connect(3);
  transports_[2].reset();
  try {
    receive_from(2);
    FAIL() << "no error";
  } catch (const host::PeerGone& gone) {
    EXPECT_EQ(gone.peer, 2);
  }
}

// Once a process has ended, what is sent there is an error before all is read that it has said.
TEST_F(Transports, HearWhyARankIsGoneThatTheySendTo) {
  connect(2);
  send(0, 1);
  of(1).abort("rank 1 has had enough");
  transports_[1].reset();
  try {
    while (true) send(0, 1);
  } catch (const PeerFailure& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1 has had enough"));
  } catch (const host::PeerGone&) {
    ADD_FAILURE() << "not why";
  }
}

// Its system answers, as that of a process which is stopped.
TEST_F(Transports, EndAtAnAbortWhileAConnectionIsUnderWay) {
  const Socket stopped = listen_on({"127.0.0.1", 0});
  transports_.push_back(std::make_unique<TcpTransport>(
      MeshPlan{0, 2, "127.0.0.1", "token", std::chrono::seconds(60)}, [&](std::string_view own) {
        return std::vector<std::string>{std::string(own), local_endpoint(stopped).to_string()};
      }));
  EXPECT_THROW(receive_from(1, milliseconds(100)), host::TransferTimeout);
  std::thread other([&] {
    std::this_thread::sleep_for(milliseconds(100));
    of(0).abort("enough");
  });
  const auto begin = Clock::now();
  EXPECT_THROW(receive_from(1), PeerFailure);
  other.join();
  transports_.clear();
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5) * lockstep::testing::timeout_multiplier);
}

int count_connections() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    count += getpeername(std::stoi(entry.path().filename().string()),
                         reinterpret_cast<sockaddr*>(&peer), &size) == 0;
  }
  return count;
}

/// What is logged while rank 1 sends rank 0 two messages of five elements, and rank 0 receives one.
std::string log_of_unreceived_message(
    const std::function<void(const std::function<void(Communicator&)>&)>& run) {
  std::mutex mutex;
  std::string log;
  set_log_sink([&](std::string_view line) {
    const std::lock_guard lock(mutex);
    log += line;
  });
  std::atomic<bool> is_sent = false;
  run([&](Communicator& world) {
    std::array<float, 5> values{};
    const comm::Buffer buffer{values.data(), 5, DType::f32};
    if (world.rank() == 0) world.receive(buffer, 1).wait();
    if (world.rank() == 1) {
      for (int i = 0; i < 2; ++i) world.send(buffer, 0).wait();
      is_sent = true;
    }
    while (!is_sent) std::this_thread::sleep_for(milliseconds(1));
  });
  set_log_sink(nullptr);
  return log;
}

TEST(Leaving, WarnsOfAMessageThatNobodyReceived) {
  const std::string expected =
      "rank 0 leaves world and has not received what was sent to it: rank 1 called send to rank 0 "
      "#0 of 5 f32";
  const auto expect_warning = [&](const auto& run) {
    const std::string log = log_of_unreceived_message(run);
    const std::size_t at = log.find(expected);
    EXPECT_NE(at, std::string::npos) << log;
    EXPECT_EQ(log.find("leaves world", at + expected.size()), std::string::npos) << log;
  };
  expect_warning([](const auto& body) { run_over_messages(2, body); });
  expect_warning([](const auto& body) { run_over_window(3, body); });
  expect_warning([](const auto& body) { run_over_hosts({0, 0, 1}, body); });
  const CommunicatorOptions options{.timeout = std::chrono::seconds(60)};
  expect_warning([&](const auto& body) {
    run_over_hosts({0, 1, 1}, body, options, Messages::sockets);
  });
}

// A tree of n ranks has n - 1 edges, each of two ends here.
TEST(TcpGroups, ConnectOnlyRanksThatExchangeMessages) {
  constexpr int ranks = 16;
  std::atomic<int> most = 0;
  const int before = count_connections();
  run_over_messages(ranks, [&](Communicator& world) {
    float value = 1;
    world.all_reduce({&value, 1, DType::f32}).wait();
    EXPECT_EQ(value, ranks);
    if (world.rank() == 0) most = count_connections() - before;
    world.barrier().wait();
  });
  EXPECT_LE(most, 2 * (ranks - 1));
  EXPECT_GT(most, 0);
}

}  // namespace
}  // namespace lockstep::comm::tcp
