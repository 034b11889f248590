#include "findings.hpp"
#include "nccl/ranks.hpp"

namespace simgpu {
namespace {

using testing::DeviceArray;
using testing::Rank;

constexpr std::size_t fresh_count = 64;

/// Memory that nothing has written yet.
class FreshMemory {
 public:
  explicit FreshMemory(std::size_t bytes) { EXPECT_EQ(cudaMalloc(&data_, bytes), cudaSuccess); }
  FreshMemory(const FreshMemory&) = delete;
  FreshMemory& operator=(const FreshMemory&) = delete;
  ~FreshMemory() { EXPECT_EQ(cudaFree(data_), cudaSuccess); }
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

TEST(NcclMemory, ResultsAreInitialized) {
  testing::Findings findings;
  testing::with_threads(2, [](Rank& self) {
    const DeviceArray<float> own(std::vector<float>(fresh_count, 1.0f));
    const FreshMemory all(2 * fresh_count * sizeof(float));
    ASSERT_EQ(ncclAllGather(own.data(), all.data(), fresh_count, ncclFloat32, self.communicator,
                            self.stream),
              ncclSuccess);
    self.synchronize();
    std::vector<float> values(2 * fresh_count);
    ASSERT_EQ(
        cudaMemcpy(values.data(), all.data(), 2 * fresh_count * sizeof(float), cudaMemcpyDefault),
        cudaSuccess);
    EXPECT_EQ(values, std::vector<float>(2 * fresh_count, 1.0f));
  });
  EXPECT_EQ(findings.text(), "");
}

TEST(NcclMemory, AContributionThatNothingWroteIsReported) {
  testing::Findings findings;
  testing::with_threads(2, [](Rank& self) {
    const FreshMemory data(fresh_count * sizeof(float));
    if (self.rank == 1) {
      ASSERT_EQ(cudaMemsetAsync(data.data(), 0, fresh_count * sizeof(float), self.stream),
                cudaSuccess);
    }
    ASSERT_EQ(ncclAllReduce(data.data(), data.data(), fresh_count, ncclFloat32, ncclSum,
                            self.communicator, self.stream),
              ncclSuccess);
    self.synchronize();
  });
  EXPECT_TRUE(findings.only(Finding::uninitialized_read, "ncclAllReduce reads 256 bytes"))
      << findings.text();
}

// As on a GPU, where memory goes on behind a buffer.
TEST(NcclMemory, ABufferThatIsTooShortIsReportedAndNoErrorOfTheDevice) {
  testing::Findings findings;
  testing::with_threads(2, [](Rank& self) {
    const DeviceArray<float> data(std::vector<float>(1, 1.0f));
    ASSERT_EQ(ncclAllReduce(data.data(), data.data(), sizeof(float), ncclFloat32, ncclSum,
                            self.communicator, self.stream),
              ncclSuccess);
    self.synchronize();
    float sum = 0;
    ASSERT_EQ(cudaMemcpy(&sum, data.data(), sizeof sum, cudaMemcpyDefault), cudaSuccess);
    EXPECT_EQ(sum, 2.0f);
  });
  for (const Finding kind : findings.kinds()) EXPECT_EQ(kind, Finding::out_of_bounds);
  EXPECT_NE(findings.text().find("ncclAllReduce reads 16 bytes"), std::string::npos);
}

TEST(NcclMemory, ABufferAtAnOddAddressIsReported) {
  testing::Findings findings;
  testing::with_threads(1, [](Rank& self) {
    const DeviceArray<float> data(std::vector<float>(fresh_count, 1.0f));
    char* const odd = reinterpret_cast<char*>(data.data()) + 2;
    ASSERT_EQ(ncclAllReduce(odd, odd, fresh_count - 1, ncclFloat32, ncclSum, self.communicator,
                            self.stream),
              ncclSuccess);
    ASSERT_EQ(ncclAllReduce(odd, odd, fresh_count - 1, ncclFloat16, ncclSum, self.communicator,
                            self.stream),
              ncclSuccess);
    self.synchronize();
  });
  EXPECT_TRUE(findings.only(Finding::misaligned, "no multiple of the 4 bytes of an element"))
      << findings.text();
}

}  // namespace
}  // namespace simgpu
