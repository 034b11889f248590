#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <deque>
#include <fstream>
#include <future>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/control/control_channel.hpp"
#include "comm/control/control_message.hpp"
#include "comm/group_registry.hpp"
#include "comm/signature_comparison.hpp"
#include "comm/tcp/handshake.hpp"
#include "comm/tcp/tcp_transport.hpp"
#include "comm/token.hpp"
#include "lockstep/comm/bootstrap.hpp"
#include "lockstep/comm/errors.hpp"
#include "lockstep/core/error.hpp"
#include "support/resident_bytes.hpp"
#include "support/timeout_multiplier.hpp"

// What strangers and broken peers may send to the sockets of a job: nothing of it ends the process,
// holds it up, or stays in its memory. Some thousand of each with every run, a million among the
// slow tests.

namespace lockstep::comm {
namespace {

using lockstep::testing::resident_bytes;
using tcp::Clock, tcp::Socket;

constexpr int some = 2'000, many = 1'000'000;

tcp::Deadline in_time() {
  return Clock::now() + std::chrono::minutes(20) * lockstep::testing::timeout_multiplier;
}

/// Spoils messages.
class Noise {
 public:
  explicit Noise(std::uint64_t seed) : random_(seed) {}

  std::size_t below(std::size_t limit) { return random_() % limit; }
  /// A message as it might come from a program that is broken, or means another one.
  std::string spoil(std::string message) {
    for (std::size_t changes = 1 + below(3); changes > 0; --changes) change(message);
    return message;
  }

  std::string bytes(std::size_t count) {
    std::string text(count, '\0');
    for (char& each : text) each = static_cast<char>(random_());
    return text;
  }

 private:
  void change(std::string& message) {
    const std::size_t at = below(message.size() + 1);
    switch (below(6)) {
      case 0: return message.resize(at);
      case 1: message.append(bytes(below(64))); return;
      case 2: message.insert(at, message.substr(below(message.size() + 1))); break;
      case 3: message.erase(at, below(16)); return;
      case 4: overwrite(message, at, bytes(1 + below(8))); return;
      default: overwrite(message, at / 4 * 4, extreme_number());
    }
    if (message.size() > 20'000) message.resize(20'000);
  }

  static void overwrite(std::string& message, std::size_t at, std::string_view with) {
    message.replace(at, with.size(), with);
  }

  // Where numbers of elements, ranks and bytes are expected.
  std::string extreme_number() {
    constexpr std::array<std::uint64_t, 9> extremes{0,
                                                    1,
                                                    8192,
                                                    8193,
                                                    0x7FFF'FFFF,
                                                    0x8000'0000,
                                                    0xFFFF'FFFF,
                                                    std::uint64_t{1} << 63,
                                                    ~std::uint64_t{0}};
    const std::uint64_t value = extremes[below(extremes.size())];
    return {reinterpret_cast<const char*>(&value), below(2) == 0 ? 4U : 8U};
  }

  std::mt19937_64 random_;
};

/// Does something so many times, of which none may take long, and all but the first few no memory.
/// Sanitizers keep what was freed.
template <class Action>
void repeat(int times, Action action) {
  std::int64_t before = 0;
  Clock::duration longest{};
  for (int i = 0; i < times; ++i) {
    if (i == times / 10) before = resident_bytes();
    const auto begin = Clock::now();
    action();
    longest = std::max<Clock::duration>(longest, Clock::now() - begin);
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_LT(longest, std::chrono::seconds(10) * lockstep::testing::timeout_multiplier);
  if (lockstep::testing::timeout_multiplier == 1) {
    EXPECT_LT(resident_bytes(), before + (8 << 20));
  }
}

struct Pair {
  Pair() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) != 0) std::abort();
    near = Socket(ends[0]);
    far = Socket(ends[1]);
  }
  Socket near, far;
};

void send_bytes(const Socket& to, std::string_view bytes) {
  (void)::send(to.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

std::string received(const Socket& from) {
  std::array<char, 40'000> room;
  const ssize_t count = ::recv(from.descriptor(), room.data(), room.size(), MSG_DONTWAIT);
  return {room.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0))};
}

std::string handshake_of(const tcp::Handshake& who) {
  const Pair pair;
  tcp::present(pair.near, who, in_time());
  return received(pair.far);
}

// The connection ends at once, as that of a process that was killed: none waits for its port.
Socket stranger_at(const Socket& listener) {
  Socket socket = tcp::connect_to(tcp::local_endpoint(listener), in_time());
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  setsockopt(socket.descriptor(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  return socket;
}

// Half of them stay open, and may never have said a whole handshake.
void knock(int strangers) {
  const tcp::Handshake rank_0{tcp::Purpose::control, make_token(), 0, 2};
  tcp::Handshake rank_1 = rank_0;
  rank_1.rank = 1;
  const std::string valid = handshake_of(rank_1);
  const Socket listener = tcp::listen_on({"127.0.0.1", 0});
  auto accepted = std::async(std::launch::async,
                             [&] { return tcp::accept_ranks(listener, rank_0, 1, in_time()); });
  Noise noise(1);
  std::deque<Socket> open;
  repeat(strangers, [&] {
    std::string message = noise.spoil(valid);
    if (message.starts_with(valid)) message[noise.below(4)] ^= 1;
    Socket stranger = stranger_at(listener);
    send_bytes(stranger, message);
    if (noise.below(2) == 0) open.push_back(std::move(stranger));
    if (open.size() > 64) open.pop_front();
  });
  const auto connect = [&] { return tcp::connect_to(tcp::local_endpoint(listener), in_time()); };
  const Socket peer = tcp::join(connect, "rank 0", rank_1, in_time());
  const std::vector<Socket> sockets = accepted.get();
  send_bytes(sockets.at(1), "welcome");
  std::array<std::byte, 7> welcome;
  EXPECT_TRUE(tcp::receive_all(peer, welcome, in_time()));
}

TEST(MalformedMessages, HoldUpNoRankThatJoins) { knock(some); }
TEST(MalformedMessages, SlowMillionHoldUpNoRankThatJoins) { knock(many); }

std::string batch_of_signatures(Noise& noise) {
  std::string batch;
  const auto sender = make_intrusive<SignatureComparison>(
      [&](std::string sent) { batch = std::move(sent); }, [](const std::string&) {});
  for (std::size_t calls = 1 + noise.below(3); calls > 0; --calls)
    sender->note("world", 1, 2,
                 Signature({.kind = OperationKind::all_reduce,
                            .dtype = DType::f32,
                            .count = 8,
                            .label = "bucket 0",
                            .sequence = noise.below(4)}));
  sender->flush();
  return batch;
}

constexpr std::array all_news{"left 0 1 12", "failed 0 it timed out",
                              "asks 0/world/0.1 3 0-255:2,7", "answers 0 1 12 1 idle",
                              "answers 0 0-99:3 12 0 in #12"};

control::Message any_message(Noise& noise) {
  using control::MessageType;
  const auto type = static_cast<MessageType>(noise.below(13));
  std::string text = noise.bytes(noise.below(200));
  if (type == MessageType::signatures) text = noise.spoil(batch_of_signatures(noise));
  if (type == MessageType::stop_request) text = noise.spoil("140 rank 1 got SIGTERM");
  if (type == MessageType::stop_answer) text = noise.spoil("17");
  if (type == MessageType::news) text = noise.spoil(all_news[noise.below(all_news.size())]);
  return {.type = type, .exit_code = static_cast<int>(noise.below(300)), .text = std::move(text)};
}

std::string wire_bytes_of(const control::Message& message) {
  const Pair pair;
  control::send_message(pair.near, message);
  return received(pair.far);
}

// A connection goes on until it breaks the protocol.
void read_spoiled_messages(int messages) {
  Noise noise(2);
  std::optional<Pair> pair(std::in_place);
  control::MessageReader reader;
  repeat(messages, [&] {
    const std::string bytes = noise.spoil(wire_bytes_of(any_message(noise)));
    const std::size_t cut = noise.below(bytes.size() + 1);
    bool is_alive = true;
    for (const std::string_view part :
         {std::string_view(bytes).substr(0, cut), std::string_view(bytes).substr(cut)}) {
      send_bytes(pair->near, part);
      is_alive = is_alive && reader.read(pair->far);
      while (const auto message = reader.next()) EXPECT_LE(message->text.size(), control::max_text);
    }
    if (is_alive && reader.read(pair->far)) return;
    pair.emplace();
    reader = {};
  });
}

TEST(MalformedMessages, EndTheirConnectionAlone) { read_spoiled_messages(some); }
TEST(MalformedMessages, SlowMillionEndTheirConnectionAlone) { read_spoiled_messages(many); }

// The first one that cannot be read, or disagrees, is reported, and ends the job.
void compare_spoiled_signatures(int batches) {
  Noise noise(3);
  int reports = 0, all_reports = 0;
  IntrusivePtr<SignatureComparison> hub;
  repeat(batches, [&] {
    if (!hub || noise.below(100) == 0) {
      all_reports += std::exchange(reports, 0);
      hub = make_intrusive<SignatureComparison>(SignatureComparison::Send{},
                                                [&](const std::string&) { ++reports; });
    }
    hub->take(noise.spoil(batch_of_signatures(noise)));
    hub->flush();
    EXPECT_LE(reports, 1);
  });
  EXPECT_GT(all_reports, 0);
}

TEST(MalformedMessages, OfSignaturesAreReportedOnce) { compare_spoiled_signatures(some); }
TEST(MalformedMessages, SlowMillionOfSignaturesAreReportedOnce) {
  compare_spoiled_signatures(many);
}

// Each by itself is what a rank may send.
TEST(MalformedMessages, OfSignaturesThatAloneMakeSenseTakeBoundedMemory) {
  std::vector<std::string> reports;
  const auto hub = make_intrusive<SignatureComparison>(
      SignatureComparison::Send{}, [&](const std::string& text) { reports.push_back(text); });
  const std::int64_t before = resident_bytes();
  const auto sender = make_intrusive<SignatureComparison>(
      [&](const std::string& batch) { hub->take(batch, 5); }, [](const std::string&) {});
  for (std::uint64_t number = 0; number < 300'000; ++number) {
    sender->note("world", 1, 2,
                 Signature({.kind = OperationKind::all_reduce, .count = 8, .sequence = number}));
    sender->flush();
  }
  ASSERT_FALSE(reports.empty());
  EXPECT_THAT(reports[0], ::testing::HasSubstr("rank 5 has called so many operations"));
  if (lockstep::testing::timeout_multiplier == 1) {
    EXPECT_LT(resident_bytes(),
              before + 3 * static_cast<std::int64_t>(SignatureComparison::max_pending));
  }
}

TEST(MalformedMessages, OfAGroupThatIsNotThereYetTakeBoundedMemory) {
  const auto registry = std::make_shared<GroupRegistry>();
  const GroupMembership group(registry);
  const std::int64_t before = resident_bytes();
  const std::string news = "left 0 1 " + std::string(4000, '7');
  for (int i = 0; i < 20'000; ++i) registry->receive(news);
  if (lockstep::testing::timeout_multiplier == 1) {
    EXPECT_LT(resident_bytes(), before + (24 << 20));
  }
}

// The peak of this process' memory so far.
std::size_t most_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::size_t>(usage.ru_maxrss) << 10;
}

// Of a rank with the right token, in the first exchange.
TEST(MalformedMessages, TakeNoMemoryForWhatAPeerAnnouncesAndDoesNotSend) {
  for (const std::uint64_t length : {std::uint64_t{200} << 20, std::uint64_t{1} << 40}) {
    const int port = tcp::local_endpoint(tcp::listen_on({"127.0.0.1", 0})).port;
    auto peer = std::async(std::launch::async, [&] {
      const auto connect = [&] { return tcp::connect_to({"127.0.0.1", port}, in_time()); };
      const Socket socket =
          tcp::join(connect, "rank 0", {tcp::Purpose::rendezvous, "secret", 1, 2}, in_time());
      send_bytes(socket, {reinterpret_cast<const char*>(&length), sizeof length});
    });
    const std::size_t before = most_resident_bytes();
    try {
      make_bootstrap(
          {.rank = 0, .size = 2, .address = "127.0.0.1", .port = port, .token = "secret"});
      ADD_FAILURE() << "no error";
    } catch (const PeerFailure& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("rank 1 closed its connection"));
    } catch (const CorruptData& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("rank 1 announced 1099511627776 bytes"));
    }
    peer.get();
    if (lockstep::testing::timeout_multiplier == 1) {
      EXPECT_LT(most_resident_bytes(), before + (std::size_t{32} << 20));
    }
  }
}

/// Two ranks that are threads.
class ThreadBootstrap final : public Bootstrap {
 public:
  struct Meeting {
    std::array<std::string, 2> bytes;
    std::barrier<> all{2};
  };
  ThreadBootstrap(Meeting& meeting, int rank) : meeting_(meeting), rank_(rank) { discover_peers(); }

  int rank() const override { return rank_; }
  int size() const override { return 2; }
  std::string_view kind() const override { return "thread"; }
  void end_job(int exit_code) noexcept override { std::_Exit(exit_code); }

 private:
  std::vector<std::string> exchange(std::string_view bytes) override {
    meeting_.bytes[static_cast<std::size_t>(rank_)] = bytes;
    meeting_.all.arrive_and_wait();
    std::vector<std::string> all(meeting_.bytes.begin(), meeting_.bytes.end());
    meeting_.all.arrive_and_wait();
    return all;
  }

  Meeting& meeting_;
  int rank_;
};

// Rank 1, which has the token, up to its end.
void speak_nonsense(Bootstrap& bootstrap, Noise& noise, int messages) {
  const std::string invitation = bootstrap.broadcast_bytes({}, 0, "address of the control channel");
  const std::size_t separator = invitation.find('\n');
  const Socket socket =
      tcp::connect_to(tcp::Endpoint::parse(invitation.substr(0, separator)), in_time());
  tcp::present(socket, {tcp::Purpose::control, invitation.substr(separator + 1), 1, 2}, in_time());
  for (int i = 0; i < messages && !tcp::has_hung_up(socket); ++i) {
    const std::string bytes = wire_bytes_of(any_message(noise));
    send_bytes(socket, noise.below(20) == 0 ? noise.spoil(bytes) : bytes);
  }
}

// Rank 0 leaves in good order, or hears of a failure: that rank 1 was lost at the latest.
void run_jobs_with_a_broken_rank(int messages) {
  constexpr int messages_of_a_job = 100;
  Noise noise(4);
  repeat(messages / messages_of_a_job, [&] {
    ThreadBootstrap::Meeting meeting;
    auto broken = std::async(std::launch::async, [&] {
      ThreadBootstrap bootstrap(meeting, 1);
      speak_nonsense(bootstrap, noise, messages_of_a_job);
    });
    ThreadBootstrap bootstrap(meeting, 0);
    const auto comparison =
        make_intrusive<SignatureComparison>(SignatureComparison::Send{}, [](const std::string&) {});
    {
      const control::ControlChannel channel(
          bootstrap,
          {.on_failure = [](const control::JobFailure&) {},
           .on_news = [&](const std::string& news) { bootstrap.groups()->receive(news); },
           .on_signatures = [&](int rank,
                                std::string_view batch) { comparison->take(batch, rank); }},
          std::chrono::seconds(30));
    }
    broken.get();
  });
}

TEST(MalformedMessages, OfARankEndTheJobAndNotTheProcess) { run_jobs_with_a_broken_rank(some); }
TEST(MalformedMessages, SlowMillionOfARankEndTheJobAndNotTheProcess) {
  run_jobs_with_a_broken_rank(many);
}

// Rank 1 is alive, and says so, but reads nothing.
TEST(MalformedMessages, ARankThatReadsNothingIsLost) {
  ThreadBootstrap::Meeting meeting;
  std::promise<std::string> failure;
  std::atomic<bool> is_over = false;
  auto deaf = std::async(std::launch::async, [&] {
    ThreadBootstrap bootstrap(meeting, 1);
    const std::string invitation =
        bootstrap.broadcast_bytes({}, 0, "address of the control channel");
    const std::size_t separator = invitation.find('\n');
    const auto connect = [&] {
      return tcp::connect_to(tcp::Endpoint::parse(invitation.substr(0, separator)), in_time());
    };
    const Socket socket =
        tcp::join(connect, "rank 0",
                  {tcp::Purpose::control, invitation.substr(separator + 1), 1, 2}, in_time());
    while (!is_over) {
      control::send_message(socket, {control::MessageType::heartbeat});
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  });
  ThreadBootstrap bootstrap(meeting, 0);
  {
    control::ControlChannel channel(
        bootstrap,
        {.on_failure = [&](const control::JobFailure& job) { failure.set_value(job.text); },
         .on_news = {},
         .on_signatures = {}},
        std::chrono::minutes(5));
    std::future<std::string> told = failure.get_future();
    const std::string news(8000, 'n');
    while (told.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
      channel.announce(news);
    EXPECT_THAT(told.get(), ::testing::AllOf(::testing::HasSubstr("rank 1 (host "),
                                             ::testing::HasSubstr("it has not read")));
  }
  is_over = true;
  deaf.get();
}

// What a peer sends where 64 bytes are due: they come, or an error that says what came.
void receive_spoiled_data(int messages) {
  constexpr int messages_of_a_mesh = 4;
  const std::string token = make_token();
  Noise noise(5);
  repeat(messages / messages_of_a_mesh, [&] {
    std::promise<std::string> endpoint;
    auto peer = std::async(std::launch::async, [&] {
      const Socket socket =
          tcp::connect_to(tcp::Endpoint::parse(endpoint.get_future().get()), in_time());
      tcp::present(socket, {tcp::Purpose::data, token, 1, 2}, in_time());
      pollfd welcome{socket.descriptor(), POLLIN, 0};
      poll(&welcome, 1, 60'000);  // what hangs up before is not read
      constexpr std::uint64_t length = 64;
      for (int i = 0; i < messages_of_a_mesh; ++i) {
        const std::string head(reinterpret_cast<const char*>(&length), sizeof length);
        send_bytes(socket, noise.spoil(head + std::string(length, 'x')));
      }
    });
    tcp::TcpTransport transport({.rank = 0,
                                 .size = 2,
                                 .address = "127.0.0.1",
                                 .token = token,
                                 .timeout = std::chrono::minutes(20)},
                                [&](std::string_view own) {
                                  endpoint.set_value(std::string(own));
                                  return std::vector<std::string>{std::string(own), {}};
                                });
    peer.get();
    std::array<std::byte, 64> room{};
    const host::Deadline deadline;
    try {
      while (true) {
        std::array<host::Incoming, 1> in{{{.peer = 1, .room = room}}};
        transport.transfer({}, in, {.deadline = &deadline});
        EXPECT_LE(in[0].received, room.size());
      }
    } catch (const Error&) {
    } catch (const host::PeerGone& gone) {
      EXPECT_EQ(gone.peer, 1);
    }
  });
}

TEST(MalformedMessages, OfDataEndTheTransfer) { receive_spoiled_data(some); }
TEST(MalformedMessages, SlowMillionOfDataEndTheTransfer) { receive_spoiled_data(many); }

}  // namespace
}  // namespace lockstep::comm
