#include <array>
#include <cstdint>
#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cuda_runtime_api.h"
#include "findings.hpp"
#include "memory/address_space.hpp"

namespace simgpu {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using testing::Findings;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SimTransfers : public ::testing::Test {
 protected:
  static constexpr std::size_t bytes = 1000;
  using Bytes = std::vector<std::uint8_t>;

  void SetUp() override {
    ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
    ASSERT_EQ(cudaMalloc(&a, bytes), cudaSuccess);
    ASSERT_EQ(cudaMalloc(&b, bytes), cudaSuccess);
  }
  void TearDown() override {
    EXPECT_EQ(cudaFree(a), cudaSuccess);
    EXPECT_EQ(cudaFree(b), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    static_cast<void>(cudaGetLastError());
  }
  static Bytes counted() {
    Bytes values(bytes);
    std::iota(values.begin(), values.end(), std::uint8_t{0});
    return values;
  }
  static std::byte* at(void* data, std::size_t offset) {
    return static_cast<std::byte*>(data) + offset;
  }

  Findings findings;
  cudaStream_t stream = nullptr;
  void* a = nullptr;
  void* b = nullptr;
};

TEST_F(SimTransfers, CopyInAllDirections) {
  const Bytes values = counted();
  Bytes back(bytes);
  ASSERT_EQ(cudaMemcpy(a, values.data(), bytes, cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(b, a, bytes, cudaMemcpyDeviceToDevice), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(back.data(), b, bytes, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(back, values);
  EXPECT_THAT(findings.text(), IsEmpty());
}

TEST_F(SimTransfers, AnAsynchronousCopyFromTheHostsOwnMemoryTakesItAtTheCall) {
  Bytes values = counted();
  ASSERT_EQ(cudaMemcpyAsync(a, values.data(), bytes, cudaMemcpyHostToDevice, stream), cudaSuccess);
  std::fill(values.begin(), values.end(), std::uint8_t{0});
  Bytes back(bytes);
  ASSERT_EQ(cudaMemcpyAsync(back.data(), a, bytes, cudaMemcpyDeviceToHost, stream), cudaSuccess);
  EXPECT_EQ(back, counted()) << "a copy to the host's own memory returns when it is done";
}

TEST_F(SimTransfers, RefuseADirectionThatIsNotThePointers) {
  Bytes values(bytes);
  EXPECT_EQ(cudaMemcpy(a, values.data(), bytes, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(a, b, bytes, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(nullptr, b, bytes, cudaMemcpyDefault), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(values.data(), 0, bytes), cudaErrorInvalidValue);
}

TEST_F(SimTransfers, PastTheEndOfABlockAreRefusedAndReported) {
  Bytes values(bytes + 1);
  EXPECT_EQ(cudaMemcpy(a, values.data(), bytes + 1, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(at(b, 10), 0, bytes, stream), cudaErrorInvalidValue);
  EXPECT_THAT(findings.kinds(), ElementsAre(Finding::out_of_bounds, Finding::out_of_bounds));
  EXPECT_THAT(findings.text(), HasSubstr("0 bytes past the end of the block of 1000 bytes"));
}

TEST_F(SimTransfers, FromFreedMemoryAreReported) {
  void* gone = nullptr;
  ASSERT_EQ(cudaMalloc(&gone, bytes), cudaSuccess);
  ASSERT_EQ(cudaFree(gone), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(a, gone, bytes, cudaMemcpyDefault), cudaErrorInvalidValue);
  EXPECT_THAT(findings.kinds(), ElementsAre(Finding::use_after_free));
  EXPECT_THAT(findings.text(), HasSubstr("which was freed"));
}

TEST_F(SimTransfers, HandOnWhichBytesWereWritten) {
  ASSERT_EQ(cudaMemsetAsync(at(a, 7), 1, 100, stream), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(at(b, 30), a, 200, cudaMemcpyDeviceToDevice, stream), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_THAT(findings.text(), IsEmpty()) << "a copy of what nobody wrote is no error";
  EXPECT_EQ(first_uninitialized(at(b, 37), 100), std::nullopt);
  EXPECT_EQ(first_uninitialized(at(b, 37), 101), std::optional<std::size_t>(100));
  EXPECT_EQ(first_uninitialized(at(b, 36), 10), std::optional<std::size_t>(0));
}

TEST_F(SimTransfers, ToTheHostOfWhatNobodyWroteAreReported) {
  Bytes back(bytes);
  ASSERT_EQ(cudaMemset(a, 1, bytes - 1), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(back.data(), a, bytes, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_THAT(findings.kinds(), ElementsAre(Finding::uninitialized_read));
  EXPECT_THAT(findings.text(), HasSubstr("byte 999 is never written"));
}

TEST_F(SimTransfers, CopyRowsAndLeaveTheGapsAlone) {
  const Bytes values = counted();
  ASSERT_EQ(cudaMemset(a, 9, bytes), cudaSuccess);
  ASSERT_EQ(cudaMemcpy2DAsync(a, 20, values.data(), 10, 5, 3, cudaMemcpyHostToDevice, stream),
            cudaSuccess);
  Bytes back(60);
  ASSERT_EQ(cudaMemcpyAsync(back.data(), a, 60, cudaMemcpyDeviceToHost, stream), cudaSuccess);
  for (std::size_t i = 0; i < 60; ++i)
    EXPECT_EQ(back[i], i % 20 < 5 ? i / 20 * 10 + i % 20 : 9) << i;
  EXPECT_EQ(cudaMemcpy2D(a, 4, b, 10, 5, 3, cudaMemcpyDefault), cudaErrorInvalidPitchValue);
  EXPECT_THAT(findings.text(), IsEmpty());
}

TEST_F(SimTransfers, FillRows) {
  ASSERT_EQ(cudaMemset(a, 0, bytes), cudaSuccess);
  ASSERT_EQ(cudaMemset2DAsync(a, 16, 7, 4, 10, stream), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  Bytes back(160);
  ASSERT_EQ(cudaMemcpy(back.data(), a, 160, cudaMemcpyDeviceToHost), cudaSuccess);
  for (std::size_t i = 0; i < 160; ++i) EXPECT_EQ(back[i], i % 16 < 4 ? 7 : 0) << i;
}

TEST_F(SimTransfers, MemoryOfAStreamComesAndGoesInItsOrder) {
  void* data = nullptr;
  ASSERT_EQ(cudaMallocAsync(&data, 100, stream), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(data, 3, 100, stream), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(a, data, 100, cudaMemcpyDeviceToDevice, stream), cudaSuccess);
  ASSERT_EQ(cudaFreeAsync(data, stream), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(data, 3, 100, stream), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeAsync(data, stream), cudaErrorInvalidValue);
  EXPECT_THAT(findings.kinds(), ElementsAre(Finding::use_after_free, Finding::invalid_free));
  Bytes back(100);
  ASSERT_EQ(cudaMemcpyAsync(back.data(), a, 100, cudaMemcpyDeviceToHost, stream), cudaSuccess);
  EXPECT_THAT(back, Each(3));
}

}  // namespace
}  // namespace simgpu
