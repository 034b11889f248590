// Who else may come to the sockets of a communicator that is being made: nothing of it ends the
// process, holds the ranks up or takes their places.

#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <future>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "findings.hpp"
#include "nccl/ranks.hpp"
#include "nccl/socket.hpp"

namespace simgpu {
namespace {

using nccl::Descriptor;

/// What a unique id has, behind its magic.
struct Meeting {
  std::array<char, 32> token;
  nccl::Endpoint place;
};

class NcclStrangers : public ::testing::Test {
 protected:
  NcclStrangers() {
    EXPECT_EQ(ncclGetUniqueId(&id_), ncclSuccess);
    std::memcpy(&meeting_, id_.internal + 8, sizeof meeting_);
  }
  ~NcclStrangers() override { EXPECT_EQ(findings_.text(), ""); }

  Descriptor stranger() const {
    return nccl::connect_to(meeting_.place, [] { return false; });
  }
  /// One that says something. Its connection stays open.
  Descriptor stranger(const std::string& words) const {
    Descriptor socket = stranger();
    (void)::send(socket.get(), words.data(), words.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return socket;
  }
  /// The beginning of a handshake of the job's own: its token, and what comes behind it.
  std::string handshake(std::int32_t ranks, const std::string& rest) const {
    std::string words(meeting_.token.data(), meeting_.token.size());
    words.append(reinterpret_cast<const char*>(&ranks), sizeof ranks);
    return words + rest;
  }
  /// How one of two ranks fares.
  std::future<ncclResult_t> join(int rank) const {
    return std::async(std::launch::async, [this, rank] {
      EXPECT_EQ(cudaSetDevice(rank), cudaSuccess);
      ncclComm_t communicator = nullptr;
      const ncclResult_t result = ncclCommInitRank(&communicator, 2, id_, rank);
      if (result == ncclSuccess) {
        EXPECT_EQ(ncclCommDestroy(communicator), ncclSuccess);
      }
      return result;
    });
  }
  void expect_that_both_join() const {
    auto first = join(0), second = join(1);
    EXPECT_EQ(first.get(), ncclSuccess);
    EXPECT_EQ(second.get(), ncclSuccess);
  }

  ncclUniqueId id_;
  Meeting meeting_;
  testing::Findings findings_;
};

std::string noise(std::mt19937& random, std::size_t bytes) {
  std::string text(bytes, '\0');
  for (char& each : text) each = static_cast<char>(random());
  return text;
}

// More than are kept at a time.
TEST_F(NcclStrangers, HoldUpNoRankThatJoins) {
  std::mt19937 random(1);
  std::vector<Descriptor> open;
  for (int i = 0; i < 600; ++i) {
    const std::string almost = handshake(2, noise(random, random() % 400));
    std::string words = noise(random, random() % 600);
    if (i % 3 == 0) words = almost.substr(0, random() % meeting_.token.size());  // half a token
    if (i % 3 == 1) {  // one that is almost right
      words = almost;
      words[random() % meeting_.token.size()] ^= 1;
    }
    Descriptor socket = stranger(words);
    if (i % 2 == 0) open.push_back(std::move(socket));
  }
  const auto begin = std::chrono::steady_clock::now();
  expect_that_both_join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

// The token, and not a rank: what a peer of the job says must make sense, too.
TEST_F(NcclStrangers, WithTheTokenAndNonsenseEndTheMeeting) {
  auto rank = join(0);
  const Descriptor peer = stranger(handshake(-1, std::string(400, '\x7f')));
  EXPECT_NE(rank.get(), ncclSuccess);
}

// A token is for one meeting.
TEST_F(NcclStrangers, OfAnotherJobAreNoRanksOfThisOne) {
  ncclUniqueId other;
  ASSERT_EQ(ncclGetUniqueId(&other), ncclSuccess);
  std::string words = handshake(2, std::string(400, '\0'));
  std::memcpy(words.data(), other.internal + 8, meeting_.token.size());
  const Descriptor peer = stranger(words);
  expect_that_both_join();
}

TEST_F(NcclStrangers, DoNotReachAJobOfThisHostFromOutside) {
  in_addr address{};
  ASSERT_EQ(inet_pton(AF_INET, meeting_.place.address, &address), 1) << meeting_.place.address;
  EXPECT_EQ(ntohl(address.s_addr) >> 24, 127u);
}

}  // namespace
}  // namespace simgpu
