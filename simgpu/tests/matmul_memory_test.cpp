#include <gtest/gtest.h>

#include "findings.hpp"
#include "matmul.hpp"

namespace simgpu::test {
namespace {

using testing::Findings;

/// A dense product on written memory of exactly its size, until a test spoils something.
class SimulatedMatmulMemory : public ::testing::Test {
 protected:
  static constexpr Product product{.m = 32, .n = 16, .k = 24};

  static DeviceBuffer zeros(std::size_t elements) {
    return DeviceBuffer(std::vector<std::byte>(elements * sizeof(float)));
  }
  void run(const void* a) {
    const float alpha = 1, beta = 0;
    ASSERT_EQ(descriptors_.choose(), CUBLAS_STATUS_SUCCESS);
    run(a, descriptors_.found[0].algo, alpha, beta);
  }
  void run(const void* a, const cublasLtMatmulAlgo_t& algorithm, float alpha, float beta) {
    EXPECT_EQ(multiply(d_.data(), a, algorithm, alpha, beta), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  }

  /// With an output of the test's own.
  void run_into(void* d, const void* a) {
    ASSERT_EQ(descriptors_.choose(), CUBLAS_STATUS_SUCCESS);
    const float alpha = 1, beta = 0;
    EXPECT_EQ(multiply(d, a, descriptors_.found[0].algo, alpha, beta), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  }
  cublasStatus_t multiply(void* d, const void* a, const cublasLtMatmulAlgo_t& algorithm,
                          float alpha, float beta) {
    return cublasLtMatmul(descriptors_.handle, descriptors_.operation, &alpha, a, descriptors_.a,
                          b_.data(), descriptors_.b, &beta, d, descriptors_.c, d, descriptors_.d,
                          &algorithm, nullptr, 0, nullptr);
  }

  Descriptors descriptors_{product};
  DeviceBuffer a_ = zeros(32 * 24), b_ = zeros(24 * 16), d_{32 * 16 * sizeof(float)};
};

TEST_F(SimulatedMatmulMemory, ACorrectProductReportsNothing) {
  const Findings findings;
  run(a_.data());
  EXPECT_EQ(findings.text(), "");
}

TEST_F(SimulatedMatmulMemory, AWrongLeadingDimensionIsOutOfBoundsAndNamesTheMatrix) {
  const Findings findings;
  Descriptors::set(descriptors_.b, CUBLASLT_MATRIX_LAYOUT_LD, std::int64_t{32});
  run(a_.data());
  EXPECT_TRUE(findings.only(Finding::out_of_bounds, "B (")) << findings.text();
}

TEST_F(SimulatedMatmulMemory, HostMemoryIsNoOperand) {
  const Findings findings;
  alignas(256) static float host[32 * 24] = {};
  run(host);
  EXPECT_TRUE(findings.only(Finding::out_of_bounds, "not memory of a device")) << findings.text();
}

TEST_F(SimulatedMatmulMemory, AnInputThatNothingWroteIsReported) {
  const Findings findings;
  const DeviceBuffer fresh(32 * 24 * sizeof(float));
  run(fresh.data());
  EXPECT_TRUE(findings.only(Finding::uninitialized_read, "reads A")) << findings.text();
}

TEST_F(SimulatedMatmulMemory, AnOutputIsReadOnlyWithBeta) {
  const Findings findings;
  ASSERT_EQ(descriptors_.choose(), CUBLAS_STATUS_SUCCESS);
  run(a_.data(), descriptors_.found[0].algo, 1, 1);
  EXPECT_TRUE(findings.only(Finding::uninitialized_read, "reads C")) << findings.text();
}

TEST_F(SimulatedMatmulMemory, GapsBetweenColumnsNeedNotBeWritten) {
  const Findings findings;
  const DeviceBuffer a(40 * 24 * sizeof(float));
  EXPECT_EQ(cudaMemset2D(a.data(), 40 * sizeof(float), 0, 32 * sizeof(float), 24), cudaSuccess);
  Descriptors::set(descriptors_.a, CUBLASLT_MATRIX_LAYOUT_LD, std::int64_t{40});
  run(a.data());
  EXPECT_EQ(findings.text(), "");
}

TEST_F(SimulatedMatmulMemory, AnOutputThatLiesOverAnInputIsReported) {
  const Findings findings;
  run_into(a_.at(32 * 8 * sizeof(float)), a_.data());
  EXPECT_TRUE(findings.only(Finding::race, "D and A overlap")) << findings.text();
}

TEST_F(SimulatedMatmulMemory, AnOutputBesideAnInputInOneBufferIsNone) {
  const DeviceBuffer both = zeros(32 * 40);
  const Findings findings;
  run_into(both.at(32 * 24 * sizeof(float)), both.data());
  EXPECT_EQ(findings.text(), "");
}

TEST_F(SimulatedMatmulMemory, AnOperandOfAnotherDeviceIsReported) {
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  const DeviceBuffer a = zeros(32 * 24);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  const Findings findings;
  run(a.data());
  EXPECT_TRUE(findings.only(Finding::peer_access, "A is memory that device 0 has no access to"))
      << findings.text();
}

TEST_F(SimulatedMatmulMemory, AHandleOfAnotherDeviceThanTheStreamsIsReported) {
  const Findings findings;
  ASSERT_EQ(descriptors_.choose(), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(multiply(d_.data(), a_.data(), descriptors_.found[0].algo, 1, 0),
            CUBLAS_STATUS_EXECUTION_FAILED);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_TRUE(findings.only(Finding::invalid_launch, "the handle was made for device 0"))
      << findings.text();
}

// A kernel chosen for an aligned bias faults on another (PyTorch pull request 194497).
TEST_F(SimulatedMatmulMemory, ABiasLessAlignedThanTheHeuristicsSawIsReported) {
  for (const auto epilogue : {CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BGRADB}) {
    const DeviceBuffer bias = zeros(33);
    descriptors_.set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    descriptors_.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<void*>(nullptr));
    ASSERT_EQ(descriptors_.choose(), CUBLAS_STATUS_SUCCESS);
    descriptors_.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias.at(sizeof(float)));
    {
      const Findings findings;
      run(a_.data(), descriptors_.found[0].algo, 1, 0);
      EXPECT_TRUE(findings.only(Finding::invalid_launch, "misaligned")) << findings.text();
    }
    const Findings findings;
    run(a_.data());  // asks again, with the pointer set
    EXPECT_EQ(findings.text(), "") << epilogue;
  }
}

}  // namespace
}  // namespace simgpu::test
