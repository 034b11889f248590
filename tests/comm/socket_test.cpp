// Connections, and the messages of the control channel that go over them.

#include "comm/tcp/socket.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/connections.hpp"
#include "comm/control/control_message.hpp"
#include "comm/tcp/local_socket.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::comm::tcp {
namespace {

TEST(Socket, ListensOnTheInterfaceAskedFor) {
  const Socket listener = listen_on({"127.0.0.1", 0});
  EXPECT_EQ(local_endpoint(listener).address, "127.0.0.1");
  EXPECT_GT(local_endpoint(listener).port, 0);
}

/// UBSan needs a pipe to see of which type an object is, once for each type: it sees those of
/// errors here, as long as there are files.
void show_errors_to_sanitizers() {
  try {
    LOCKSTEP_THROW(TooManyFiles, "none is to be had, of ", 1);
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("none"));
  }
}

TEST(Socket, SaysThatTheProcessMayOpenNoMoreFiles) {
  show_errors_to_sanitizers();
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

TEST(Socket, SaysSoAtOnceWhereItCannotConnectForWantOfFiles) {
  show_errors_to_sanitizers();
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
TEST(Socket, KeepsConnectionsAliveAtBothEnds) {
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

// Those of a job that wait for rank 0.
TEST(Socket, AsksMoreAndMoreSeldomWhileNobodyListens) {
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
  std::int64_t whole = 25;
  for (int i = 0; i < 14; ++i, whole = std::min<std::int64_t>(whole * 3 / 2, 1000)) {
    const auto length = pause.next();
    EXPECT_LE(length.count(), whole);
    EXPECT_GE(length.count(), whole - whole / 4);
  }
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

TEST(Socket, NobodyListeningIsATimeout) {
  EXPECT_THROW(connect_to({"127.0.0.1", 1}, in(100)), Timeout);
}

TEST(Socket, WaitsForANameThatNobodyKnowsYet) {
  try {
    connect_to({"rank-0.invalid", 1}, in(500));
    FAIL() << "no error";
  } catch (const Timeout& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("'rank-0.invalid' in time"));
  }
  EXPECT_THROW(listen_on({"rank-0.invalid", 0}), InvalidArgument);
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
  const Message news{MessageType::news, 0, std::string(8000, 'n')};
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
