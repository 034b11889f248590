#include <utility>

#include "findings.hpp"
#include "nccl/ranks.hpp"

namespace simgpu {
namespace {

using testing::DeviceArray;
using testing::Rank;

class NcclGroups : public ::testing::Test {
 protected:
  ~NcclGroups() override { EXPECT_EQ(findings_.text(), ""); }
  testing::Findings findings_;
};

TEST_F(NcclGroups, SendsAndReceivesOfAGroupProceedTogether) {
  testing::with_threads(4, [](Rank& self) {
    const int next = (self.rank + 1) % self.size, before = (self.rank + 3) % self.size;
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{100'003}}) {
      const DeviceArray<int> mine(std::vector<int>(count, self.rank)),
          theirs(std::vector<int>(count, -1));
      ASSERT_EQ(ncclGroupStart(), ncclSuccess);
      ASSERT_EQ(ncclSend(mine.data(), count, ncclInt32, next, self.communicator, self.stream),
                ncclSuccess);
      ASSERT_EQ(ncclRecv(theirs.data(), count, ncclInt32, before, self.communicator, self.stream),
                ncclSuccess);
      ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
      self.synchronize();
      EXPECT_EQ(theirs.download(), std::vector<int>(count, before));
    }
  });
}

// Of which the other rank wants both before it sends anything: they wait for each other, as on an
// H100.
TEST_F(NcclGroups, SeveralMessagesBetweenTwoRanksGoInRounds) {
  testing::with_threads(2, [](Rank& self) {
    const int other = 1 - self.rank;
    const DeviceArray<int> mine({1, 2}), theirs({0, 0});
    const auto send = [&](int i) {
      EXPECT_EQ(ncclSend(mine.data() + i, 1, ncclInt32, other, self.communicator, self.stream),
                ncclSuccess);
    };
    const auto receive = [&](int i) {
      EXPECT_EQ(ncclRecv(theirs.data() + i, 1, ncclInt32, other, self.communicator, self.stream),
                ncclSuccess);
    };
    const auto group = [](const auto& calls) {
      ASSERT_EQ(ncclGroupStart(), ncclSuccess);
      calls();
      ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
    };
    group([&] { send(0), receive(0); });  // connects them
    self.synchronize();
    if (self.rank == 0) {
      group([&] { receive(0), receive(1), send(0), send(1); });
    } else {
      receive(0);
      self.synchronize();
      receive(1);
    }
    EXPECT_FALSE(self.finishes_within(100));
    EXPECT_EQ(ncclCommAbort(std::exchange(self.communicator, nullptr)), ncclSuccess);
  });
}

TEST_F(NcclGroups, ARankSendsToItself) {
  testing::with_threads(2, [](Rank& self) {
    const DeviceArray<int> from({1, 2, 3}), to({0, 0, 0});
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    ncclRecv(to.data(), 3, ncclInt32, self.rank, self.communicator, self.stream);
    ncclSend(from.data(), 3, ncclInt32, self.rank, self.communicator, self.stream);
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
    self.synchronize();
    EXPECT_EQ(to.download(), from.download());
  });
}

TEST_F(NcclGroups, ARankThatSendsToItselfReceivesInTheSameGroup) {
  testing::with_threads(1, [](Rank& self) {
    const DeviceArray<int> data({1});
    EXPECT_EQ(ncclSend(data.data(), 1, ncclInt32, 0, self.communicator, self.stream),
              ncclInvalidUsage);
    EXPECT_EQ(ncclRecv(data.data(), 1, ncclInt32, 0, self.communicator, self.stream),
              ncclInvalidUsage);
  });
}

TEST_F(NcclGroups, MoreCallsThanAreKeptAtOnce) {
  testing::with_threads(2, [](Rank& self) {
    constexpr int calls = 100;
    const DeviceArray<int> data(std::vector<int>(calls, 1)), sums(std::vector<int>(calls, 1));
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    for (int i = 0; i < calls; ++i)
      if (self.rank == 0)
        ncclSend(data.data() + i, 1, ncclInt32, 1, self.communicator, self.stream);
      else
        ncclRecv(data.data() + i, 1, ncclInt32, 0, self.communicator, self.stream);
    for (int i = 0; i < calls; ++i)
      ncclAllReduce(sums.data() + i, sums.data() + i, 1, ncclInt32, ncclSum, self.communicator,
                    self.stream);
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
    EXPECT_TRUE(self.finishes_within(20'000));
  });
}

TEST_F(NcclGroups, OneThreadDrivesAllDevices) {
  std::vector<ncclComm_t> communicators(4);
  ASSERT_EQ(ncclCommInitAll(communicators.data(), 4, nullptr), ncclSuccess);
  std::vector<cudaStream_t> streams(4);
  std::vector<std::unique_ptr<DeviceArray<float>>> data;
  for (int device = 0; device < 4; ++device) {
    const auto i = static_cast<std::size_t>(device);
    ASSERT_EQ(cudaSetDevice(device), cudaSuccess);
    ASSERT_EQ(cudaStreamCreate(&streams[i]), cudaSuccess);
    data.push_back(
        std::make_unique<DeviceArray<float>>(std::vector<float>(9, static_cast<float>(device))));
    int rank = -1, where = -1, count = 0;
    EXPECT_EQ(ncclCommUserRank(communicators[i], &rank), ncclSuccess);
    EXPECT_EQ(ncclCommCuDevice(communicators[i], &where), ncclSuccess);
    EXPECT_EQ(ncclCommCount(communicators[i], &count), ncclSuccess);
    EXPECT_EQ(rank, device);
    EXPECT_EQ(where, device);
    EXPECT_EQ(count, 4);
  }
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (std::size_t i = 0; i < 4; ++i)
    ASSERT_EQ(ncclAllReduce(data[i]->data(), data[i]->data(), 9, ncclFloat32, ncclSum,
                            communicators[i], streams[i]),
              ncclSuccess);
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
  for (std::size_t i = 0; i < 4; ++i) {
    ASSERT_EQ(cudaStreamSynchronize(streams[i]), cudaSuccess);
    EXPECT_EQ(data[i]->download(), std::vector<float>(9, 6.0f));
    EXPECT_EQ(ncclCommDestroy(communicators[i]), ncclSuccess);
    EXPECT_EQ(cudaStreamDestroy(streams[i]), cudaSuccess);
  }
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
}

TEST_F(NcclGroups, StreamsOfAGroupWaitForEachOther) {
  testing::with_threads(2, [](Rank& self) {
    cudaStream_t other;
    ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
    const DeviceArray<int> a({1}), b({2});
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    ncclAllReduce(a.data(), a.data(), 1, ncclInt32, ncclSum, self.communicator, self.stream);
    ncclAllReduce(b.data(), b.data(), 1, ncclInt32, ncclSum, self.communicator, other);
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
    ASSERT_EQ(cudaStreamSynchronize(other), cudaSuccess);
    EXPECT_EQ(a.download(), std::vector<int>{2});  // made on the other stream
    EXPECT_EQ(b.download(), std::vector<int>{4});
    ASSERT_EQ(cudaStreamDestroy(other), cudaSuccess);
  });
}

TEST_F(NcclGroups, NothingOfAFailedGroupIsLaunched) {
  testing::with_threads(1, [](Rank& self) {
    const DeviceArray<int> data({5});
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(ncclSend(data.data(), 1, ncclInt32, 0, self.communicator, self.stream), ncclSuccess);
    EXPECT_EQ(ncclRecv(data.data(), 1, ncclInt32, 7, self.communicator, self.stream),
              ncclInvalidArgument);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
    EXPECT_TRUE(self.finishes_within(5'000));
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  });
}

TEST_F(NcclGroups, ACapturedCollectiveRunsWithEachLaunchOfItsGraph) {
  testing::with_threads(2, [](Rank& self) {
    const DeviceArray<float> data({1.0f});
    ASSERT_EQ(cudaStreamBeginCapture(self.stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    ASSERT_EQ(ncclAllReduce(data.data(), data.data(), 1, ncclFloat32, ncclSum, self.communicator,
                            self.stream),
              ncclSuccess);
    cudaGraph_t graph;
    ASSERT_EQ(cudaStreamEndCapture(self.stream, &graph), cudaSuccess);
    cudaGraphExec_t executable;
    ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(cudaGraphLaunch(executable, self.stream), cudaSuccess);
      ASSERT_EQ(ncclAllReduce(data.data(), data.data(), 1, ncclFloat32, ncclMax, self.communicator,
                              self.stream),
                ncclSuccess);
    }
    self.synchronize();
    EXPECT_EQ(data.download(), std::vector<float>{8.0f});
    EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  });
}

}  // namespace
}  // namespace simgpu
