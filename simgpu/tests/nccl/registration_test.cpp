#include <latch>
#include <memory>

#include "findings.hpp"
#include "nccl/ranks.hpp"
#include "simgpu/simgpu.hpp"

// Buffers that are registered with NCCL (ncclCommRegister): its rules, and what breaks them.

namespace simgpu {
namespace {

using testing::DeviceArray;
using testing::Rank;

constexpr std::size_t page_count = 1024;  // a page of floats
constexpr std::size_t bytes = page_count * sizeof(float);

using Array = DeviceArray<float>;

class NcclRegistration : public ::testing::Test {
 protected:
  void expect_found(const std::string& words) {
    EXPECT_TRUE(findings_.only(Finding::registration, words)) << findings_.text();
  }
  testing::Findings findings_;
};

void* registered(const Rank& self, const Array& array) {
  void* handle = nullptr;
  EXPECT_EQ(ncclCommRegister(self.communicator, array.data(), bytes, &handle), ncclSuccess);
  EXPECT_NE(handle, nullptr);
  return handle;
}

Array ones() { return Array(std::vector<float>(page_count, 1.0f)); }

void add_up(const Rank& self, const Array& array) {
  ASSERT_EQ(ncclAllReduce(array.data(), array.data(), page_count, ncclFloat32, ncclSum,
                          self.communicator, self.stream),
            ncclSuccess);
}

TEST_F(NcclRegistration, IsForCallsBetweenItAndDeregistration) {
  testing::with_threads(2, [](Rank& self) {
    const Array array = ones();
    void* const handle = registered(self, array);
    EXPECT_EQ(registered(self, array), handle) << "counted, as in NCCL";
    add_up(self, array);
    self.synchronize();
    EXPECT_EQ(ncclCommDeregister(self.communicator, handle), ncclSuccess);
    add_up(self, array);  // still registered, once
    self.synchronize();
    EXPECT_EQ(ncclCommDeregister(self.communicator, handle), ncclSuccess);
    EXPECT_EQ(ncclCommDeregister(self.communicator, nullptr), ncclSuccess);
    EXPECT_EQ(array.download()[0], 4.0f);
  });
  EXPECT_EQ(findings_.text(), "");
}

TEST_F(NcclRegistration, OfMemoryThatIsFreedIsReported) {
  testing::with_threads(1, [](Rank& self) {
    auto array = std::make_unique<Array>(std::vector<float>(page_count, 1.0f));
    void* const handle = registered(self, *array);
    array.reset();
    EXPECT_EQ(ncclCommDeregister(self.communicator, handle), ncclSuccess);
  });
  expect_found("is freed while it is registered with the communicator of 1 ranks");
}

TEST_F(NcclRegistration, ThatIsTakenBackTwiceIsReported) {
  testing::with_threads(1, [](Rank& self) {
    const Array array = ones();
    void* const handle = registered(self, array);
    EXPECT_EQ(ncclCommDeregister(self.communicator, handle), ncclSuccess);
    EXPECT_EQ(ncclCommDeregister(self.communicator, handle), ncclInvalidUsage);
  });
  expect_found("the handle was deregistered before");
}

TEST_F(NcclRegistration, OfAnotherCommunicatorIsReported) {
  testing::with_threads(1, [](Rank& self) {
    ncclComm_t other = nullptr;
    ASSERT_EQ(ncclCommSplit(self.communicator, 0, 0, &other, nullptr), ncclSuccess);
    const Array array = ones();
    void* const handle = registered(self, array);
    EXPECT_EQ(ncclCommDeregister(other, handle), ncclInvalidUsage);
    EXPECT_EQ(ncclCommDeregister(self.communicator, handle), ncclSuccess);
    EXPECT_EQ(ncclCommDestroy(other), ncclSuccess);
  });
  expect_found("the handle belongs to another, the communicator");
}

TEST_F(NcclRegistration, ThatIsLeftAtTheEndOfItsCommunicatorIsReported) {
  testing::with_threads(1, [](Rank& self) {
    const Array array = ones();
    registered(self, array);
    EXPECT_EQ(ncclCommDestroy(self.communicator), ncclSuccess);
    self.communicator = nullptr;
  });
  expect_found("is still registered as the communicator of 1 ranks ends");
}

TEST_F(NcclRegistration, EndsWithACommunicatorThatIsAborted) {
  testing::with_threads(1, [](Rank& self) {
    const Array array = ones();
    registered(self, array);
    EXPECT_EQ(ncclCommAbort(self.communicator), ncclSuccess);
    self.communicator = nullptr;
  });
  EXPECT_EQ(findings_.text(), "");
}

TEST_F(NcclRegistration, ThatIsTakenBackWhileACallUsesItIsReported) {
  std::latch is_gone(2);
  testing::with_threads(2, [&](Rank& self) {
    const Array array = ones();
    void* const handle = registered(self, array);
    if (self.rank == 0) {
      add_up(self, array);  // waits for the other rank
      EXPECT_EQ(ncclCommDeregister(self.communicator, handle), ncclSuccess);
    }
    is_gone.arrive_and_wait();
    if (self.rank == 1) add_up(self, array);
    self.synchronize();
    if (self.rank == 1) {
      EXPECT_EQ(ncclCommDeregister(self.communicator, handle), ncclSuccess);
    }
  });
  expect_found("is deregistered while an operation of the communicator of 2 ranks uses it");
}

TEST_F(NcclRegistration, OfBuffersOfSomeRanksOnlyIsReported) {
  testing::with_threads(3, [](Rank& self) {
    const Array array = ones();
    void* handle = nullptr;
    if (self.rank != 1) handle = registered(self, array);
    add_up(self, array);
    self.synchronize();
    EXPECT_EQ(ncclCommDeregister(self.communicator, handle), ncclSuccess);
  });
  expect_found("of rank 0, 2 its buffers are registered, of rank 1 not");
}

}  // namespace
}  // namespace simgpu
