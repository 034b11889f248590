#include "comm/tcp/handshake.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <functional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/control/control_message.hpp"
#include "comm/tcp/local_socket.hpp"
#include "lockstep/comm/errors.hpp"
#include "lockstep/core/error.hpp"
#include "support/timeout_multiplier.hpp"

namespace lockstep::comm::tcp {
namespace {

Deadline in(int milliseconds) { return Clock::now() + std::chrono::milliseconds(milliseconds); }

// For what takes no time to speak of, unless the machine is busy.
Deadline soon() { return in(30'000); }

// Tries until it holds, or for too long.
template <class Condition>
bool comes_true(Condition condition) {
  const Deadline deadline = soon();
  while (!condition()) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

Socket connected_to(const Socket& listener) { return connect_to(local_endpoint(listener), soon()); }

TEST(Handshake, ListensOnTheInterfaceAskedFor) {
  const Socket listener = listen_on({"127.0.0.1", 0});
  EXPECT_EQ(local_endpoint(listener).address, "127.0.0.1");
  EXPECT_GT(local_endpoint(listener).port, 0);
}

TEST(Handshake, SaysThatTheProcessMayOpenNoMoreFiles) {
  const Socket listener = listen_on({"127.0.0.1", 0});
  const Socket peer = connected_to(listener);
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit full{static_cast<rlim_t>(peer.descriptor()) + 1, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &full);
  std::string message;
  try {
    accept_from(listener);
  } catch (const Error& error) {
    message = error.what();
  }
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_THAT(message, ::testing::HasSubstr("ulimit -n"));
  EXPECT_TRUE(accept_from(listener));
}

TEST(Handshake, SaysSoAtOnceWhereItCannotConnectForWantOfFiles) {
  const Socket listener = listen_on({"127.0.0.1", 0});
  const Endpoint there = local_endpoint(listener);
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit full{static_cast<rlim_t>(listener.descriptor()) + 1, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &full);
  std::string message;
  try {
    connect_to(there, in(2000));
  } catch (const Error& error) {
    message = error.what();
  }
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_THAT(message, ::testing::HasSubstr("ulimit -n"));
}

// Firewalls forget connections that are silent for minutes.
TEST(Handshake, KeepsConnectionsAliveAtBothEnds) {
  const Socket listener = listen_on({"127.0.0.1", 0});
  const Socket near = connected_to(listener);
  std::optional<Socket> far;
  ASSERT_TRUE(comes_true([&] { return (far = accept_from(listener)).has_value(); }));
  for (const int socket : {near.descriptor(), far->descriptor()}) {
    const auto value_of = [socket](int level, int option) {
      int value = 0;
      socklen_t size = sizeof value;
      getsockopt(socket, level, option, &value, &size);
      return value;
    };
    EXPECT_EQ(value_of(SOL_SOCKET, SO_KEEPALIVE), 1);
    EXPECT_LE(value_of(IPPROTO_TCP, TCP_KEEPIDLE), 60);
  }
}

// Systems give processes 1,024 open files at first; rank 0 of 512 needs more.
TEST(Handshake, TakesMoreRanksThanTheProcessCouldOpenFilesAtFirst) {
  constexpr int size = 40;
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const Socket listener = listen_on({"127.0.0.1", 0});
  std::vector<Socket> peers;
  for (int rank = 1; rank < size; ++rank) {
    peers.push_back(connected_to(listener));
    present(peers.back(), {Purpose::control, "t", rank, size}, soon());
  }
  const rlimit few{static_cast<rlim_t>(peers.back().descriptor()) + 10, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &few);
  std::string message;
  try {
    accept_ranks(listener, {Purpose::control, "t", 0, size}, 1, soon());
  } catch (const std::exception& error) {
    message = error.what();
  }
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(message, "");
}

TEST(Handshake, TakesRanksWithTheTokenAndNobodyElse) {
  const Socket listener = listen_on({"127.0.0.1", 0});
  const Handshake self{Purpose::control, "token", 0, 3};
  std::vector<Socket> strangers;
  const auto connect_as = [&](const Handshake& who) {
    strangers.push_back(connected_to(listener));
    present(strangers.back(), who, soon());
  };
  connect_as({Purpose::control, "Token", 1, 3});   // another token
  connect_as({Purpose::data, "token", 1, 3});      // another purpose
  connect_as({Purpose::control, "token", 3, 3});   // no such rank
  connect_as({Purpose::control, "token", -1, 3});  // no rank at all
  connect_as({Purpose::control, "token", 1, 4});   // another size
  strangers.push_back(connected_to(listener));     // says nothing
  strangers.push_back(connected_to(listener));
  const std::string noise(5000, 'x');
  send_all(strangers.back(), std::as_bytes(std::span(noise)), soon());

  std::vector<Socket> peers;
  for (const int rank : {2, 1}) {
    peers.push_back(connected_to(listener));
    present(peers.back(), {Purpose::control, "token", rank, 3}, soon());
  }
  const auto accepted = accept_ranks(listener, self, 1, soon());
  ASSERT_EQ(accepted.size(), 3u);
  EXPECT_FALSE(accepted[0]);
  const char sent = 'b';
  ASSERT_TRUE(send_all(peers[0], std::as_bytes(std::span(&sent, 1)), soon()));
  char received = 0;
  ASSERT_TRUE(receive_all(accepted[2], std::as_writable_bytes(std::span(&received, 1)), soon()));
  EXPECT_EQ(received, 'b');
}

TEST(Handshake, NamesTheRanksThatDoNotCome) {
  const Socket listener = listen_on({"127.0.0.1", 0});
  const Socket one = connected_to(listener);
  present(one, {Purpose::control, "t", 1, 4}, soon());
  try {
    accept_ranks(listener, {Purpose::control, "t", 0, 4}, 1, in(200));
    FAIL() << "no error";
  } catch (const Timeout& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("2 3 (of 4)"));
  }
}

TEST(Handshake, SilentConnectionsHoldUpNobody) {
  const Socket listener = listen_on({"127.0.0.1", 0});
  std::atomic<bool> is_over = false;
  std::thread flood([&] {
    std::vector<Socket> silent;
    while (!is_over && silent.size() < 400) silent.push_back(connected_to(listener));
    while (!is_over) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  });
  std::thread rank([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // the flood comes first
    const Socket socket = connected_to(listener);
    present(socket, {Purpose::control, "t", 1, 2}, soon());
    while (!is_over) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  });
  const auto start = Clock::now();
  EXPECT_TRUE(accept_ranks(listener, {Purpose::control, "t", 0, 2}, 1, soon())[1]);
  EXPECT_LT(Clock::now() - start, std::chrono::milliseconds(1000) * testing::timeout_multiplier);
  is_over = true;
  flood.join();
  rank.join();
}

// A lost packet is sent again after 200 ms.
TEST(Handshake, RanksOfALargeJobMayAllBeSilentAtFirst) {
  constexpr int size = 400;
  const Socket listener = listen_on({"127.0.0.1", 0});
  std::vector<Socket> sockets;
  std::thread ranks([&] {
    for (int rank = 1; rank < size; ++rank) sockets.push_back(connected_to(listener));
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    for (int rank = 1; rank < size; ++rank)
      present(sockets[static_cast<std::size_t>(rank - 1)], {Purpose::control, "t", rank, size},
              soon());
  });
  const auto accepted = accept_ranks(listener, {Purpose::control, "t", 0, size}, 1, soon());
  ranks.join();
  EXPECT_EQ(std::ranges::count_if(accepted, [](const Socket& s) { return bool(s); }), size - 1);
}

// The systems of hosts that many ranks reach at once keep as few connections as net.core.somaxconn
// says for a listener that is late, and forget those beyond after some seconds.
TEST(Handshake, RanksComeAgainWhereALateListenerForgotThem) {
  constexpr int size = 24;
  const Socket listener = listen_on({"127.0.0.1", 0});
  const Endpoint there = local_endpoint(listener);
  ASSERT_EQ(listen(listener.descriptor(), 1), 0);
  std::vector<Socket> sockets(size);
  std::vector<std::thread> ranks;
  for (int rank = 1; rank < size; ++rank)
    ranks.emplace_back([&, rank] {
      try {
        sockets[static_cast<std::size_t>(rank)] =
            join([&] { return connect_to(there, soon()); }, "rank 0",
                 {Purpose::control, "t", rank, size}, soon());
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  std::this_thread::sleep_for(std::chrono::seconds(8));
  const auto accepted = accept_ranks(listener, {Purpose::control, "t", 0, size}, 1, soon());
  for (std::thread& rank : ranks) rank.join();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // for resets that are on their way
  for (std::size_t rank = 1; rank < size; ++rank) {
    EXPECT_FALSE(has_hung_up(accepted[rank])) << rank;
    EXPECT_FALSE(has_hung_up(sockets[rank])) << rank;
  }
}

// What `join` throws where the listening side takes one connection and does that to it.
std::string error_of_join(const std::function<void(Socket& listener, Socket& taken)>& end) {
  Socket listener = listen_on({"127.0.0.1", 0});
  const Endpoint there = local_endpoint(listener);
  std::thread other([&] {
    std::optional<Socket> taken;
    while (!(taken = accept_from(listener))) std::this_thread::yield();
    end(listener, *taken);
  });
  std::string message;
  try {
    join([&] { return connect_to(there, in(2000)); }, "rank 0", {Purpose::control, "t", 1, 2},
         in(2000));
  } catch (const Error& error) {
    message = error.what();
  }
  other.join();
  return message;
}

// In good order, and as a process that is killed with unread bytes in its connections.
TEST(Handshake, TriesAgainWhereTheListenerClosedBeforeItAcceptedARank) {
  for (const bool is_read : {true, false}) {
    const std::string message = error_of_join([&](Socket& listener, Socket& taken) {
      std::array<std::byte, 8> some;
      receive_all(taken, some, soon());
      std::vector<std::byte> rest(is_read ? 1000 : 0);
      if (is_read) (void)::recv(taken.descriptor(), rest.data(), rest.size(), 0);
      listener.close();
      taken.close();
    });
    EXPECT_THAT(message, ::testing::HasSubstr("nobody answered on")) << is_read;
  }
}

// As a service or a tunnel whose server is not there yet.
TEST(Handshake, OutlivesAProxyThatClosesWhatItAccepts) {
  const Socket listener = listen_on({"127.0.0.1", 0});
  const Endpoint there = local_endpoint(listener);
  std::atomic<bool> is_there = false;
  std::vector<Socket> accepted;
  std::thread rank_0([&] {
    for (int closed = 0; closed < 3;)
      if (accept_from(listener)) ++closed;
    is_there = true;
    accepted = accept_ranks(listener, {Purpose::control, "t", 0, 2}, 1, soon());
  });
  const Socket socket = join([&] { return connect_to(there, soon()); }, "rank 0",
                             {Purpose::control, "t", 1, 2}, soon());
  EXPECT_TRUE(is_there);
  rank_0.join();
  EXPECT_FALSE(has_hung_up(accepted[1]));
  Socket proxy = listen_on({"127.0.0.1", 0});
  std::atomic<bool> is_over = false;
  std::thread closes_all([&] {
    while (!is_over) accept_from(proxy);
  });
  try {
    join([&] { return connect_to(local_endpoint(proxy), in(300)); }, "rank 0",
         {Purpose::control, "t", 1, 2}, in(300));
    ADD_FAILURE() << "no error";
  } catch (const Timeout& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("closed without a word"));
  }
  is_over = true;
  closes_all.join();
}

TEST(Handshake, IsTurnedAwayAtOnceWithAnotherTokenOrNumberOfRanks) {
  const Socket listener = listen_on({"127.0.0.1", 0});
  std::thread rank_0([&] { accept_ranks(listener, {Purpose::control, "t", 0, 2}, 1, soon()); });
  const auto connect = [&] { return connected_to(listener); };
  for (const Handshake& other :
       {Handshake{Purpose::control, "x", 1, 2}, Handshake{Purpose::control, "t", 1, 3}})
    EXPECT_THROW(join(connect, "rank 0", other, soon()), PeerFailure);
  join(connect, "rank 0", {Purpose::control, "t", 1, 2}, soon());
  rank_0.join();
}

// Those of a job that wait for rank 0.
TEST(Handshake, AsksMoreAndMoreSeldomWhileNobodyListens) {
  Socket listener = listen_on({"127.0.0.1", 0});
  const Endpoint nobody = local_endpoint(listener);
  listener.close();
  int attempts = 0;
  EXPECT_THROW(connect_to(nobody, in(1000), [&] { ++attempts; }), Timeout);
  EXPECT_GT(attempts, 1);
  EXPECT_LE(attempts, 12);
}

TEST(Backoff, GrowsToASecondAndDiffersByChance) {
  Backoff pause;
  for (double whole = 25; whole < 5000; whole *= 1.5) {
    const auto length = pause.next();
    EXPECT_LE(length.count(), std::min(whole, 1000.0) + 1);
    EXPECT_GE(length.count(), 0.74 * std::min(whole, 1000.0) - 8);
  }
}

TEST(Handshake, SaysThatTheListenerDidNotAcceptARankInTime) {
  const std::string message =
      error_of_join([](Socket&, Socket& taken) { comes_true([&] { return has_hung_up(taken); }); });
  EXPECT_THAT(message, ::testing::HasSubstr("rank 0 did not accept this rank in time"));
}

// A rank that was lost while others were still missing, and was started again.
TEST(Handshake, ARankThatIsGoneBeforeAllAreThereMayComeAgain) {
  const Socket listener = listen_on({"127.0.0.1", 0});
  const auto connect = [&] { return connected_to(listener); };
  std::vector<Socket> accepted;
  std::thread rank_0([&] {
    accepted = accept_ranks(listener, {Purpose::control, "t", 0, 3}, 1, soon());
  });
  join(connect, "rank 0", {Purpose::control, "t", 1, 3}, soon());
  const Socket again = join(connect, "rank 0", {Purpose::control, "t", 1, 3}, soon());
  EXPECT_THROW(join(connect, "rank 0", {Purpose::control, "t", 1, 3}, soon()), PeerFailure);
  const Socket last = join(connect, "rank 0", {Purpose::control, "t", 2, 3}, soon());
  rank_0.join();
  EXPECT_FALSE(has_hung_up(accepted[1]));
}

TEST(Handshake, SpeaksIpv6) {
  Socket listener;
  try {
    listener = listen_on({"[::1]", 0});
  } catch (const Error& error) {
    GTEST_SKIP() << "no IPv6 here: " << error.what();
  }
  EXPECT_EQ(local_endpoint(listener).address, "::1");
  const Socket socket = connect_to(Endpoint::parse(local_endpoint(listener).to_string()), soon());
  present(socket, {Purpose::control, "t", 1, 2}, soon());
  EXPECT_TRUE(accept_ranks(listener, {Purpose::control, "t", 0, 2}, 1, soon())[1]);
}

TEST(LocalSocket, TakesProcessesOfTheSameUserOnly) {
  const int port = local_endpoint(listen_on({"127.0.0.1", 0})).port;
  const Socket listener = listen_locally(port);
  EXPECT_THROW(listen_locally(port), Error);
  const Socket own = connect_locally(port, soon());
  EXPECT_TRUE(comes_true([&] { return accept_from(listener).has_value(); }));
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  const std::string name = "lockstep-" + std::to_string(geteuid()) + "-" + std::to_string(port);
  const pid_t stranger = fork();
  if (stranger == 0) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::ranges::copy(name, address.sun_path + 1);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
    const bool is_connected =
        setuid(65534) == 0 && connect(socket, reinterpret_cast<sockaddr*>(&address), size) == 0;
    _exit(is_connected ? 0 : 1);
  }
  int status = -1;
  waitpid(stranger, &status, 0);
  ASSERT_EQ(status, 0) << "the stranger could not connect";
  EXPECT_FALSE(accept_from(listener));
}

TEST(Handshake, NobodyListeningIsATimeout) {
  EXPECT_THROW(connect_to({"127.0.0.1", 1}, in(100)), Timeout);
}

TEST(Handshake, WaitsForANameThatNobodyKnowsYet) {
  try {
    connect_to({"rank-0.invalid", 1}, in(500));
    FAIL() << "no error";
  } catch (const Timeout& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("'rank-0.invalid' in time"));
  }
  EXPECT_THROW(listen_on({"rank-0.invalid", 0}), InvalidArgument);
}

TEST(Handshake, RefusesALongToken) {
  const Socket listener = listen_on({"127.0.0.1", 0});
  const Socket socket = connected_to(listener);
  EXPECT_THROW(present(socket, {Purpose::data, std::string(129, 'x'), 0, 2}, in(100)),
               InvalidArgument);
}

TEST(Endpoint, RefusesWhatIsNone) {
  EXPECT_EQ(Endpoint::parse("10.0.0.1 80").port, 80);
  for (const char* text : {"", "10.0.0.1", "a b", "a 0", "a 65536", "a 8x"})
    EXPECT_THROW(Endpoint::parse(text), CorruptData) << text;
}

class ControlMessages : public ::testing::Test {
 protected:
  ControlMessages() {
    const Socket listener = listen_on({"127.0.0.1", 0});
    near_ = connected_to(listener);
    while (!far_) {
      if (auto socket = accept_from(listener)) far_ = std::move(*socket);
    }
  }
  Socket near_, far_;
};

TEST_F(ControlMessages, ArriveWholeAndInOrder) {
  using namespace control;
  ASSERT_EQ(send_message(near_, {MessageType::failed, 2, "first"}), Sent::yes);
  ASSERT_EQ(send_message(near_, {MessageType::bye, 0, std::string(20'000, 'x')}), Sent::yes);
  MessageReader reader;
  std::vector<Message> messages;
  ASSERT_TRUE(comes_true([&] {
    EXPECT_TRUE(reader.read(far_));
    while (const auto message = reader.next()) messages.push_back(*message);
    return messages.size() >= 2;
  }));
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_EQ(messages[0].text, "first");
  EXPECT_EQ(messages[0].exit_code, 2);
  EXPECT_EQ(messages[1].type, MessageType::bye);
  EXPECT_EQ(messages[1].text.size(), max_text);
}

TEST_F(ControlMessages, NoiseEndsTheConnection) {
  const std::string noise(100'000, '\xFF');
  send_all(near_, std::as_bytes(std::span(noise)), soon());
  control::MessageReader reader;
  EXPECT_TRUE(comes_true([&] {
    const bool alive = reader.read(far_);
    EXPECT_FALSE(reader.next());
    return !alive;
  }));
}

TEST_F(ControlMessages, AClosedPeerIsNoticed) {
  near_.close();
  control::MessageReader reader;
  EXPECT_TRUE(comes_true([&] { return !reader.read(far_); }));
  // The first message is lost; the answer to it ends the connection for the sender too.
  EXPECT_TRUE(comes_true([&] {
    return control::send_message(far_, {control::MessageType::bye}) == control::Sent::gone;
  }));
}

// What is left of a message that did not fit would be taken for the beginning of the next one.
TEST_F(ControlMessages, NothingFollowsAMessageForWhichThereWasNoRoom) {
  using namespace control;
  const Message news{MessageType::departure, 0, std::string(8000, 'n')};
  while (send_message(near_, news) == Sent::yes) {
  }
  MessageReader reader;
  const auto all_are_whole = [&] {
    while (const auto message = reader.next())
      if (message->type != news.type || message->text != news.text) return false;
    return true;
  };
  for (int i = 0; i < 100; ++i) reader.read(far_);  // makes room
  EXPECT_TRUE(all_are_whole());
  EXPECT_EQ(send_message(near_, {MessageType::bye}), Sent::gone);
  EXPECT_TRUE(comes_true([&] {
    const bool is_alive = reader.read(far_);
    EXPECT_TRUE(all_are_whole());
    return !is_alive;
  }));
}

TEST_F(ControlMessages, HeartbeatsForWhichThereIsNoRoomAreLeftOut) {
  using namespace control;
  const std::string fill(1 << 16, 'x');
  while (::send(near_.descriptor(), fill.data(), fill.size(), MSG_DONTWAIT) > 0) {
  }
  const auto begin = Clock::now();
  for (int i = 0; i < 10; ++i) EXPECT_EQ(send_message(near_, {MessageType::heartbeat}), Sent::yes);
  EXPECT_LT(Clock::now() - begin, std::chrono::milliseconds(900));
  EXPECT_FALSE(has_hung_up(near_));
}

}  // namespace
}  // namespace lockstep::comm::tcp
