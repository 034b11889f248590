#include <gmock/gmock.h>

#include "findings.hpp"
#include "nccl/ranks.hpp"

namespace simgpu {
namespace {

using testing::DeviceArray;
using testing::Findings;
using ::testing::HasSubstr;
using testing::Rank;

// Both ranks call something that does not fit; neither goes on, until they abort.
void disagree(const std::function<void(Rank&, int* data)>& call, const std::string& expected) {
  const Findings findings;
  testing::with_threads(2, [&](Rank& self) {
    const DeviceArray<int> data(std::vector<int>(64, 1));
    call(self, data.data());
    EXPECT_FALSE(self.finishes_within(200));
    while (findings.all().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(ncclCommAbort(std::exchange(self.communicator, nullptr)), ncclSuccess);
    EXPECT_TRUE(self.finishes_within(5'000));
    EXPECT_EQ(data.download(), std::vector<int>(64, 1));
  });
  EXPECT_TRUE(findings.only(Finding::collective_mismatch, expected)) << findings.text();
}

TEST(NcclDisagreement, NamesDifferentFunctions) {
  disagree(
      [](Rank& self, int* data) {
        ncclAllReduce(data + 32, data + 32, 1, ncclInt32, ncclMax, self.communicator, self.stream);
        if (self.rank == 0)
          ncclAllReduce(data, data, 16, ncclInt32, ncclSum, self.communicator, self.stream);
        else
          ncclBroadcast(data, data, 16, ncclInt32, 1, self.communicator, self.stream);
      },
      "rank 0: AllReduce #1 i32 x 16 sum; rank 1: Broadcast #1 i32 x 16 root 1");
}

TEST(NcclDisagreement, NamesDifferentCounts) {
  disagree(
      [](Rank& self, int* data) {
        ncclAllReduce(data, data, self.rank == 0 ? 16 : 17, ncclInt32, ncclSum, self.communicator,
                      self.stream);
      },
      "rank 0: AllReduce #0 i32 x 16 sum; rank 1: AllReduce #0 i32 x 17 sum");
}

TEST(NcclDisagreement, NamesDifferentTypes) {
  disagree(
      [](Rank& self, int* data) {
        ncclAllReduce(data, data, 16, self.rank == 0 ? ncclInt32 : ncclFloat32, ncclSum,
                      self.communicator, self.stream);
      },
      "rank 0: AllReduce #0 i32 x 16 sum; rank 1: AllReduce #0 f32 x 16 sum");
}

TEST(NcclDisagreement, NamesDifferentReductions) {
  disagree(
      [](Rank& self, int* data) {
        ncclAllReduce(data, data, 16, ncclInt32, self.rank == 0 ? ncclAvg : ncclMax,
                      self.communicator, self.stream);
      },
      "x 16 avg; rank 1: AllReduce #0 i32 x 16 max");
}

TEST(NcclDisagreement, NamesDifferentRoots) {
  disagree(
      [](Rank& self, int* data) {
        ncclBroadcast(data, data, 16, ncclInt32, self.rank, self.communicator, self.stream);
      },
      "x 16 root 0; rank 1: Broadcast #0 i32 x 16 root 1");
}

TEST(NcclDisagreement, NamesAReceiveOfAnotherSize) {
  disagree(
      [](Rank& self, int* data) {
        if (self.rank == 0)
          ncclSend(data, 16, ncclInt32, 1, self.communicator, self.stream);
        else
          ncclRecv(data, 12, ncclInt32, 0, self.communicator, self.stream);
      },
      "rank 0: Send #0 i32 x 16 to 1; rank 1: Recv #0 i32 x 12 from 0");
}

TEST(NcclDisagreement, NamesAMismatchInABatchOfSeveralMessages) {
  disagree(
      [](Rank& self, int* data) {
        const int other = 1 - self.rank;
        ncclGroupStart();
        for (int i = 0; i < 2; ++i)
          if (self.rank == 0)
            ncclSend(data, 1, ncclInt32, other, self.communicator, self.stream);
          else
            ncclRecv(data + i, 1, ncclInt32, other, self.communicator, self.stream);
        if (self.rank == 0)
          ncclRecv(data + 8, 2, ncclInt32, other, self.communicator, self.stream);
        else
          ncclSend(data + 8, 1, ncclInt32, other, self.communicator, self.stream);
        ncclGroupEnd();
      },
      "rank 0: Recv #0 i32 x 2 from 1; rank 1: Send #0 i32 x 1 to 0");
}

TEST(NcclDisagreement, NamesARankThatDoesNotComeToAMismatch) {
  const Findings findings;
  testing::with_threads(3, [&](Rank& self) {
    const DeviceArray<int> data(std::vector<int>(64, 1));
    if (self.rank < 2)
      ncclAllReduce(data.data(), data.data(), self.rank == 0 ? 1 : 2, ncclInt32, ncclSum,
                    self.communicator, self.stream);
    while (findings.all().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(ncclCommAbort(std::exchange(self.communicator, nullptr)), ncclSuccess);
  });
  EXPECT_TRUE(findings.only(Finding::collective_mismatch, "rank 2: has not come"))
      << findings.text();
}

}  // namespace
}  // namespace simgpu
