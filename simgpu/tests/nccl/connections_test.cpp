// Two ranks connect before their first messages, on the host.

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "findings.hpp"
#include "nccl/ranks.hpp"

namespace simgpu {
namespace {

using testing::DeviceArray;

class NcclConnections : public ::testing::Test {
 protected:
  ~NcclConnections() override { EXPECT_EQ(findings_.text(), ""); }

  // Ranks whose communicators do not block, on threads of this process.
  struct Rank {
    int rank;
    ncclComm_t communicator = nullptr;
    cudaStream_t stream = nullptr;
    DeviceArray<int> data{std::vector<int>(8)};

    Rank(int own, int size, const ncclUniqueId& id) : rank(own) {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
      ncclCommInitRankConfig(&communicator, size, id, rank, &config);
      EXPECT_EQ(state_within(20'000), ncclSuccess);
    }
    Rank(const Rank&) = delete;
    Rank& operator=(const Rank&) = delete;
    ~Rank() {
      EXPECT_EQ(ncclCommAbort(communicator), ncclSuccess);
      EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    }

    /// Polls until it is not in progress.
    ncclResult_t state_within(int milliseconds) const {
      ncclResult_t state = ncclInProgress;
      for (int i = 0; i < milliseconds && state == ncclInProgress; ++i) {
        EXPECT_EQ(ncclCommGetAsyncError(communicator, &state), ncclSuccess);
        if (state == ncclInProgress) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      return state;
    }
    void send(int peer) { ncclSend(data.data() + peer, 1, ncclInt32, peer, communicator, stream); }
    void receive(int peer) {
      ncclRecv(data.data() + 4 + peer, 1, ncclInt32, peer, communicator, stream);
    }
    void exchange(const std::vector<int>& peers) {
      ncclGroupStart();
      for (const int peer : peers) send(peer), receive(peer);
      ncclGroupEnd();
    }
    /// True if the last call did not come to its end on the host.
    bool hangs() const { return state_within(300) == ncclInProgress; }
    bool ends() const { return state_within(20'000) == ncclSuccess; }
  };

  static void wait_for(const std::function<bool()>& condition) {
    while (!condition()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  static void with_ranks(int size, const std::function<void(Rank&)>& body) {
    ncclUniqueId id;
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    std::vector<std::thread> threads;
    std::atomic<int> done{0};
    for (int rank = 0; rank < size; ++rank)
      threads.emplace_back([&, rank] {
        EXPECT_EQ(cudaSetDevice(rank), cudaSuccess);
        Rank self(rank, size, id);
        body(self);
        ++done;
        wait_for([&] { return done == size; });
      });
    for (std::thread& thread : threads) thread.join();
  }

  testing::Findings findings_;
};

TEST_F(NcclConnections, AreMadeOneDirectionAtATime) {
  with_ranks(2, [](Rank& self) {
    for (int i = 0; i < 3; ++i) {
      self.rank == 0 ? self.send(1) : self.receive(0);
      EXPECT_TRUE(self.ends());
      self.rank == 0 ? self.receive(1) : self.send(0);
      EXPECT_TRUE(self.ends());
    }
  });
}

TEST_F(NcclConnections, KeepTheFirstCallInProgressAndNoLaterOne) {
  std::atomic<bool> has_hung{false};
  with_ranks(2, [&](Rank& self) {
    if (self.rank == 0) {
      self.send(1);
      EXPECT_TRUE(self.hangs());
      has_hung = true;
      EXPECT_TRUE(self.ends());
      self.send(1);
      EXPECT_TRUE(self.ends());
    } else {
      wait_for([&] { return has_hung.load(); });
      self.receive(0);
      EXPECT_TRUE(self.ends());
    }
  });
}

// One message for both directions is longer than the one that the other rank has room for.
TEST_F(NcclConnections, OfTwoRanksThatBeginDifferentlyFail) {
  std::atomic<bool> has_failed{false};
  with_ranks(2, [&](Rank& self) {
    if (self.rank == 0) {
      self.exchange({1});
      wait_for([&] { return has_failed.load(); });
      EXPECT_TRUE(self.hangs());
    } else {
      self.receive(0);
      EXPECT_EQ(self.state_within(20'000), ncclInternalError);
      has_failed = true;
    }
  });
}

TEST_F(NcclConnections, OfOtherRanksThatBeginDifferentlyHang) {
  with_ranks(3, [](Rank& self) {
    if (self.rank == 2) return;
    self.rank == 0 ? self.exchange({1}) : self.receive(0);
    EXPECT_TRUE(self.hangs());
  });
}

TEST_F(NcclConnections, OfAGroupAreMadeWithAllItsPeersInOneGo) {
  std::atomic<int> hanging{0};
  with_ranks(3, [&](Rank& self) {
    if (self.rank == 2) {
      wait_for([&] { return hanging == 2; });
      self.exchange({0});
    } else {
      self.exchange(self.rank == 0 ? std::vector{1, 2} : std::vector{0});
      EXPECT_TRUE(self.hangs());
      ++hanging;
    }
    EXPECT_TRUE(self.ends());
  });
}

}  // namespace
}  // namespace simgpu
