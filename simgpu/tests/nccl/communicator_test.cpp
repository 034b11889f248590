#include <atomic>
#include <string>

#include "findings.hpp"
#include "nccl/ranks.hpp"
#include "simgpu/simgpu.hpp"

namespace simgpu {
namespace {

using testing::DeviceArray;
using testing::Rank;

class NcclCommunicators : public ::testing::Test {
 protected:
  ~NcclCommunicators() override { EXPECT_EQ(findings_.text(), ""); }
  testing::Findings findings_;
};

ncclResult_t wait_until_ready(ncclComm_t communicator) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) {
    EXPECT_EQ(ncclCommGetAsyncError(communicator, &state), ncclSuccess);
    std::this_thread::yield();
  }
  return state;
}

int sum_of_ranks(ncclComm_t communicator, const Rank& self) {
  const DeviceArray<int> data({self.rank});
  const ncclResult_t status =
      ncclAllReduce(data.data(), data.data(), 1, ncclInt32, ncclSum, communicator, self.stream);
  EXPECT_TRUE(status == ncclSuccess ||
              (status == ncclInProgress && wait_until_ready(communicator) == 0))
      << ncclGetLastError(nullptr);
  self.synchronize();
  return data.download()[0];
}

TEST_F(NcclCommunicators, SplitFormsGroupsByColorAndKey) {
  testing::with_threads(4, [](Rank& self) {
    for (int round = 0; round < 2; ++round) {
      ncclComm_t half;
      ASSERT_EQ(ncclCommSplit(self.communicator, self.rank % 2, -self.rank, &half, nullptr),
                ncclSuccess)
          << ncclGetLastError(nullptr);
      int rank = -1, size = 0;
      EXPECT_EQ(ncclCommUserRank(half, &rank), ncclSuccess);
      EXPECT_EQ(ncclCommCount(half, &size), ncclSuccess);
      EXPECT_EQ(size, 2);
      EXPECT_EQ(rank, self.rank < 2 ? 1 : 0);  // negative keys turn the order round
      EXPECT_EQ(sum_of_ranks(half, self), self.rank % 2 ? 4 : 2);
      EXPECT_EQ(sum_of_ranks(self.communicator, self), 6);
      EXPECT_EQ(ncclCommDestroy(half), ncclSuccess);
    }
    ncclComm_t only_first = nullptr;
    ASSERT_EQ(ncclCommSplit(self.communicator, self.rank == 0 ? 3 : NCCL_SPLIT_NOCOLOR, 0,
                            &only_first, nullptr),
              ncclSuccess);
    EXPECT_EQ(only_first != nullptr, self.rank == 0);
    if (only_first) {
      EXPECT_EQ(ncclCommDestroy(only_first), ncclSuccess);
    }
  });
}

TEST_F(NcclCommunicators, NonBlockingOnesAnswerThatTheyAreInProgress) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  const auto body = [&](int rank) {
    Rank self{.rank = rank, .size = 2};
    ASSERT_EQ(cudaSetDevice(rank), cudaSuccess);
    ASSERT_EQ(cudaStreamCreate(&self.stream), cudaSuccess);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ASSERT_EQ(ncclCommInitRankConfig(&self.communicator, 2, id, rank, &config), ncclInProgress);
    ASSERT_EQ(wait_until_ready(self.communicator), ncclSuccess);
    const DeviceArray<int> data({1});
    const auto reduce = [&] {
      return ncclAllReduce(data.data(), data.data(), 1, ncclInt32, ncclSum, self.communicator,
                           self.stream);
    };
    EXPECT_EQ(reduce(), ncclInProgress);
    int count = 0;
    EXPECT_EQ(ncclCommCount(self.communicator, &count), ncclInvalidArgument)
        << "the call before was not waited for";
    EXPECT_EQ(wait_until_ready(self.communicator), ncclSuccess);
    self.synchronize();
    EXPECT_EQ(data.download(), std::vector<int>{2});
    ncclComm_t part = nullptr;
    ASSERT_EQ(ncclCommSplit(self.communicator, 0, 0, &part, &config), ncclSuccess);
    EXPECT_EQ(wait_until_ready(self.communicator), ncclSuccess);
    ASSERT_NE(part, nullptr);
    EXPECT_EQ(sum_of_ranks(part, self), 1);
    EXPECT_EQ(ncclCommDestroy(part), ncclSuccess);
    EXPECT_EQ(ncclCommFinalize(self.communicator), ncclInProgress);
    EXPECT_EQ(wait_until_ready(self.communicator), ncclSuccess);
    EXPECT_EQ(ncclCommCount(self.communicator, &count), ncclSuccess);
    self.leave();
  };
  std::thread other(body, 1);
  body(0);
  other.join();
}

ncclComm_t join_without_blocking(int rank, int size, const ncclUniqueId& id) {
  EXPECT_EQ(cudaSetDevice(rank), cudaSuccess);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t communicator = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(&communicator, size, id, rank, &config), ncclInProgress);
  EXPECT_EQ(wait_until_ready(communicator), ncclSuccess);
  return communicator;
}

// As in NCCL 2.28.9: the call itself says that all is well.
TEST_F(NcclCommunicators, ASplitThatDoesNotBlockHasNoPartUntilTheWholeIsReady) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::atomic<bool> other_may_split{false};
  std::thread other([&] {
    ncclComm_t whole = join_without_blocking(1, 2, id), part = nullptr;
    while (!other_may_split) std::this_thread::yield();
    EXPECT_EQ(ncclCommSplit(whole, 0, 0, &part, nullptr), ncclSuccess);
    EXPECT_EQ(wait_until_ready(whole), ncclSuccess);
    EXPECT_EQ(ncclCommDestroy(part), ncclSuccess);
    EXPECT_EQ(ncclCommDestroy(whole), ncclSuccess);
  });
  ncclComm_t whole = join_without_blocking(0, 2, id), part = whole;
  EXPECT_EQ(ncclCommSplit(whole, 0, 0, &part, nullptr), ncclSuccess);
  EXPECT_EQ(part, nullptr);
  int size = 0;
  EXPECT_EQ(ncclCommCount(whole, &size), ncclInvalidArgument);
  EXPECT_NE(std::string(ncclGetLastError(whole))
                .find("Attempt to use communicator before the previous operation returned "
                      "ncclSuccess"),
            std::string::npos);
  other_may_split = true;
  EXPECT_EQ(wait_until_ready(whole), ncclSuccess);
  EXPECT_EQ(ncclCommCount(part, &size), ncclSuccess);
  EXPECT_EQ(size, 2);
  other.join();
  EXPECT_EQ(ncclCommDestroy(part), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(whole), ncclSuccess);
}

TEST_F(NcclCommunicators, OneThatDoesNotBlockKeepsTheErrorOfACollectiveItRefused) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclComm_t communicator = join_without_blocking(0, 1, id);
  const DeviceArray<int> data({1});
  EXPECT_EQ(ncclBroadcast(data.data(), data.data(), 1, ncclInt32, 7, communicator, nullptr),
            ncclInvalidArgument);
  EXPECT_EQ(wait_until_ready(communicator), ncclInvalidArgument);
  EXPECT_EQ(ncclCommDestroy(communicator), ncclInvalidArgument);
  EXPECT_EQ(ncclCommAbort(communicator), ncclSuccess);
}

TEST_F(NcclCommunicators, EmptyCollectivesWaitForNobody) {
  testing::with_threads(2, [](Rank& self) {
    const DeviceArray<int> data({1});
    if (self.rank == 0) {
      EXPECT_EQ(ncclAllReduce(data.data(), data.data(), 0, ncclInt32, ncclSum, self.communicator,
                              self.stream),
                ncclSuccess);
    }
    self.synchronize();
  });
}

TEST_F(NcclCommunicators, ASplitThatIsAbortedLeavesAPartToAbort) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::thread other(
      [&] { EXPECT_EQ(ncclCommAbort(join_without_blocking(1, 2, id)), ncclSuccess); });
  ncclComm_t whole = join_without_blocking(0, 2, id), part = nullptr;
  other.join();
  EXPECT_EQ(ncclCommSplit(whole, 0, 0, &part, nullptr), ncclSuccess);
  EXPECT_EQ(ncclCommAbort(whole), ncclSuccess);
  ASSERT_NE(part, nullptr);
  EXPECT_EQ(ncclCommAbort(part), ncclSuccess);
}

TEST_F(NcclCommunicators, CollectivesOnSeveralStreamsKeepTheirOrder) {
  testing::with_threads(2, [](Rank& self) {
    cudaStream_t other;
    ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
    const DeviceArray<int> a(std::vector<int>(100, 1)), b(std::vector<int>(7, 1));
    for (int i = 0; i < 20; ++i) {
      ncclAllReduce(a.data(), a.data(), 100, ncclInt32, ncclMax, self.communicator, self.stream);
      ncclAllReduce(b.data(), b.data(), 7, ncclInt32, ncclMin, self.communicator, other);
    }
    EXPECT_EQ(cudaStreamSynchronize(other), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(other), cudaSuccess);
  });
}

// As a kernel of NCCL's does that spins until its peers are there.
TEST_F(NcclCommunicators, CollectivesTakeWhatTheyWaitForALateRank) {
  testing::with_threads(2, [](Rank& self) {
    const DeviceArray<float> x(std::vector<float>(8, 1.0F));
    const auto milliseconds = [&] {
      cudaEvent_t start = nullptr, end = nullptr;
      cudaEventCreate(&start);
      cudaEventCreate(&end);
      cudaEventRecord(start, self.stream);
      EXPECT_EQ(ncclAllReduce(x.data(), x.data(), x.count(), ncclFloat, ncclSum, self.communicator,
                              self.stream),
                ncclSuccess);
      cudaEventRecord(end, self.stream);
      self.synchronize();
      float taken = 0;
      EXPECT_EQ(cudaEventElapsedTime(&taken, start, end), cudaSuccess);
      cudaEventDestroy(start);
      cudaEventDestroy(end);
      return taken;
    };
    milliseconds();
    constexpr auto late = std::chrono::milliseconds(200);
    if (self.rank == 1) std::this_thread::sleep_for(late);
    if (self.rank == 0) {
      EXPECT_GT(milliseconds(), 100.0F);
    } else {
      milliseconds();
    }
  });
}

TEST_F(NcclCommunicators, AbortEndsWhatWaits) {
  testing::with_threads(2, [](Rank& self) {
    const DeviceArray<int> data({1});
    if (self.rank == 0) {
      ASSERT_EQ(ncclAllReduce(data.data(), data.data(), 1, ncclInt32, ncclSum, self.communicator,
                              self.stream),
                ncclSuccess);
      EXPECT_FALSE(self.finishes_within(50));
    }
    ncclComm_t gone = std::exchange(self.communicator, nullptr);
    EXPECT_EQ(ncclCommAbort(gone), ncclSuccess);
    EXPECT_TRUE(self.finishes_within(5'000));
    EXPECT_EQ(ncclAllReduce(data.data(), data.data(), 1, ncclInt32, ncclSum, gone, self.stream),
              ncclInvalidArgument);
  });
}

TEST_F(NcclCommunicators, AbortEndsACollectiveThatAFaultHolds) {
  testing::with_threads(1, [](Rank& self) {
    inject("hang-collective:1");
    const DeviceArray<int> data({1});
    ASSERT_EQ(ncclAllReduce(data.data(), data.data(), 1, ncclInt32, ncclSum, self.communicator,
                            self.stream),
              ncclSuccess);
    EXPECT_FALSE(self.finishes_within(50));
    EXPECT_EQ(ncclCommAbort(std::exchange(self.communicator, nullptr)), ncclSuccess);
    EXPECT_TRUE(self.finishes_within(5'000));
    clear_faults();
  });
}

TEST_F(NcclCommunicators, AbortEndsTheWaitForRanksThatNeverCome) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t communicator;
  ASSERT_EQ(ncclCommInitRankConfig(&communicator, 2, id, 0, &config), ncclInProgress);
  ncclResult_t state;
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(ncclCommGetAsyncError(communicator, &state), ncclSuccess);
  EXPECT_EQ(state, ncclInProgress);
  EXPECT_EQ(ncclCommAbort(communicator), ncclSuccess);
}

TEST_F(NcclCommunicators, RanksNeedDevicesOfTheirOwn) {
  ncclComm_t communicators[2];
  const int devices[] = {1, 1};
  EXPECT_EQ(ncclCommInitAll(communicators, 2, devices), ncclInvalidUsage);
  EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("duplicate GPU: ranks 0 and 1"),
            std::string::npos);
}

TEST_F(NcclCommunicators, RefuseWhatMakesNoSense) {
  testing::with_threads(1, [](Rank& self) {
    const DeviceArray<int> data({1, 2});
    const auto reduce = [&](const void* from, int type, int op) {
      return ncclAllReduce(from, data.data(), 2, static_cast<ncclDataType_t>(type),
                           static_cast<ncclRedOp_t>(op), self.communicator, self.stream);
    };
    int on_host[2] = {};
    EXPECT_EQ(reduce(data.data(), ncclNumTypes, ncclSum), ncclInvalidArgument);
    EXPECT_EQ(reduce(data.data(), ncclInt32, ncclNumOps), ncclInvalidArgument);
    EXPECT_EQ(reduce(nullptr, ncclInt32, ncclSum), ncclInvalidArgument);
    EXPECT_EQ(reduce(on_host, ncclInt32, ncclSum), ncclInvalidArgument);
    EXPECT_EQ(
        ncclBroadcast(data.data(), data.data(), 2, ncclInt32, 1, self.communicator, self.stream),
        ncclInvalidArgument);
    EXPECT_EQ(ncclCommUserRank(nullptr, on_host), ncclInvalidArgument);
    const ncclUniqueId nonsense{};
    ncclComm_t other;
    EXPECT_EQ(ncclCommInitRank(&other, 1, nonsense, 0), ncclInvalidArgument);
    EXPECT_EQ(other, nullptr);
    EXPECT_EQ(ncclCommInitRank(&other, 1, nonsense, 1), ncclInvalidArgument);
  });
}

TEST_F(NcclCommunicators, BuffersAreRegisteredAndAllocated) {
  testing::with_threads(1, [](Rank& self) {
    void *data = nullptr, *handle = nullptr;
    ASSERT_EQ(ncclMemAlloc(&data, 4096), ncclSuccess);
    EXPECT_EQ(ncclCommRegister(self.communicator, data, 4096, &handle), ncclSuccess);
    EXPECT_EQ(ncclCommDeregister(self.communicator, handle), ncclSuccess);
    EXPECT_EQ(ncclCommRegister(self.communicator, &handle, 8, &handle), ncclInvalidArgument);
    EXPECT_EQ(ncclMemFree(data), ncclSuccess);
  });
}

}  // namespace
}  // namespace simgpu
