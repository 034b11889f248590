#include <string>

#include <gtest/gtest.h>

#include "cublaslt/problem.hpp"
#include "matmul.hpp"

namespace simgpu::test {
namespace {

using Change = std::function<void(Descriptors&)>;

/// The status of the heuristics after a change to a product that they would take.
cublasStatus_t choose(const Product& product, const Change& change) {
  Descriptors descriptors(product);
  EXPECT_EQ(descriptors.choose(), CUBLAS_STATUS_SUCCESS);
  change(descriptors);
  const cublasStatus_t status = descriptors.choose();
  EXPECT_EQ(descriptors.count > 0, status == CUBLAS_STATUS_SUCCESS);
  return status;
}

constexpr Product plain{.m = 16, .n = 8, .k = 24};
constexpr Product half{.m = 16, .n = 8, .k = 24, .in = CUDA_R_16F, .out = CUDA_R_16F};

void expect_invalid(const Change& change, const Product& product = plain) {
  EXPECT_EQ(choose(product, change), CUBLAS_STATUS_INVALID_VALUE);
}
void expect_unsupported(const Change& change, const Product& product = plain) {
  EXPECT_EQ(choose(product, change), CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST(SimulatedMatmulRefusals, LeadingDimensionsBelowTheRows) {
  for (const auto member : {&Descriptors::a, &Descriptors::b, &Descriptors::d})
    expect_invalid([&](Descriptors& d) {
      Descriptors::set(d.*member, CUBLASLT_MATRIX_LAYOUT_LD, std::int64_t{7});
    });
  EXPECT_NE(std::string(cublaslt::last_refusal()).find("leading dimension"), std::string::npos);
}

TEST(SimulatedMatmulRefusals, EmptyAndUnfittingShapes) {
  expect_invalid(
      [](Descriptors& d) { Descriptors::set(d.a, CUBLASLT_MATRIX_LAYOUT_COLS, std::uint64_t{0}); });
  expect_invalid([](Descriptors& d) {
    Descriptors::set(d.a, CUBLASLT_MATRIX_LAYOUT_COLS, std::uint64_t{23});
  });
  expect_invalid(
      [](Descriptors& d) { Descriptors::set(d.d, CUBLASLT_MATRIX_LAYOUT_COLS, std::uint64_t{9}); });
  expect_invalid([](Descriptors& d) {
    Descriptors::set(d.b, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, std::int32_t{2});
  });
}

TEST(SimulatedMatmulRefusals, BatchesThatNotAllOfItsKernelsTake) {
  const auto batch = [](std::int32_t count) {
    return [count](Descriptors& d) {
      for (const auto member :
           {&Descriptors::a, &Descriptors::b, &Descriptors::c, &Descriptors::d}) {
        Descriptors::set(d.*member, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, count);
        Descriptors::set(d.*member, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                         std::int64_t{1000});
      }
    };
  };
  EXPECT_EQ(choose(plain, batch(65535)), CUBLAS_STATUS_SUCCESS);
  expect_unsupported(batch(65536));
}

TEST(SimulatedMatmulRefusals, TypesThatTheTableDoesNotList) {
  const auto type = [](cublasLtMatrixLayout_t Descriptors::*member, cudaDataType_t value) {
    return [=](Descriptors& d) {
      Descriptors::set(d.*member, CUBLASLT_MATRIX_LAYOUT_TYPE, static_cast<std::uint32_t>(value));
    };
  };
  expect_unsupported(type(&Descriptors::b, CUDA_R_16F));
  expect_unsupported(type(&Descriptors::a, CUDA_R_8I));
  expect_unsupported(type(&Descriptors::d, CUDA_R_64F));
  expect_unsupported(
      [](Descriptors& d) { d.set(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, CUBLAS_COMPUTE_64F); });
  expect_unsupported([](Descriptors& d) { d.set(CUBLASLT_MATMUL_DESC_SCALE_TYPE, CUDA_R_64F); });
}

TEST(SimulatedMatmulRefusals, AuxiliaryMatricesAgainstTheirRules) {
  Product product = half;
  product.m = 20;
  const auto aux = [&](std::int64_t leading, std::uintptr_t address) {
    return [=](Descriptors& d) {
      d.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
      d.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, leading);
      d.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, reinterpret_cast<void*>(address));
    };
  };
  EXPECT_EQ(choose(product, aux(24, 16)), CUBLAS_STATUS_SUCCESS);
  expect_invalid(aux(0, 16), product);   // never set
  expect_invalid(aux(16, 16), product);  // below the rows
  expect_invalid(aux(20, 16), product);  // no multiple of 8
  expect_unsupported(aux(24, 8), product);
}

TEST(SimulatedMatmulRefusals, EpiloguesOfRowMajorAndWideProducts) {
  const Change bias = [](Descriptors& d) {
    d.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  };
  Product row_major = plain;
  row_major.row_major = true;
  expect_unsupported(bias, row_major);
  expect_unsupported(bias, {.m = 8, .n = 8, .k = 8, .in = CUDA_R_64F, .out = CUDA_R_64F});
  expect_invalid([](Descriptors& d) { d.set(CUBLASLT_MATMUL_DESC_EPILOGUE, std::uint32_t{7}); });
}

TEST(SimulatedMatmulRefusals, AlignmentBelowAnElement) {
  expect_unsupported([](Descriptors& d) {
    d.prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, std::uint32_t{2});
  });
}

TEST(SimulatedMatmulRefusals, AttributesOfAnotherSize) {
  Descriptors descriptors(plain);
  const std::int32_t value = 4;
  EXPECT_EQ(cublasLtMatrixLayoutSetAttribute(descriptors.a, CUBLASLT_MATRIX_LAYOUT_LD, &value,
                                             sizeof value),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasLtMatmulDescSetAttribute(descriptors.operation, CUBLASLT_MATMUL_DESC_TRANSA,
                                           nullptr, sizeof value),
            CUBLAS_STATUS_INVALID_VALUE);
  std::int64_t leading = 0;
  std::size_t written = 0;
  EXPECT_EQ(cublasLtMatrixLayoutGetAttribute(descriptors.a, CUBLASLT_MATRIX_LAYOUT_LD, &leading,
                                             sizeof leading, &written),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(leading, 16);
  EXPECT_EQ(written, sizeof leading);
}

/// A call on zeroed memory of the device.
struct Call {
  static constexpr std::size_t bytes = 1 << 15;

  explicit Call(const Product& product)
      : descriptors(product), a(bytes), b(bytes), d(bytes), workspace(1 << 22) {
    for (const DeviceBuffer* buffer : {&a, &b, &d})
      EXPECT_EQ(cudaMemset(buffer->data(), 0, bytes), cudaSuccess);
    EXPECT_EQ(descriptors.choose(), CUBLAS_STATUS_SUCCESS);
    algorithm = descriptors.found[0].algo;
  }
  cublasStatus_t operator()() {
    const float alpha = 1;
    return cublasLtMatmul(descriptors.handle, descriptors.operation, &alpha, a.at(offset_a),
                          descriptors.a, b.data(), descriptors.b, &beta, c, descriptors.c, d.data(),
                          descriptors.d, &algorithm, workspace.at(offset_workspace),
                          workspace_bytes, nullptr);
  }

  Descriptors descriptors;
  DeviceBuffer a, b, d, workspace;
  cublasLtMatmulAlgo_t algorithm{};
  float beta = 0;
  const void* c = nullptr;
  std::size_t offset_a = 0, offset_workspace = 0, workspace_bytes = 1 << 22;
};

TEST(SimulatedMatmulRefusals, AnAlgorithmOfAnotherProblemOrAlignment) {
  Call call(plain);
  EXPECT_EQ(call(), CUBLAS_STATUS_SUCCESS);
  call.offset_a = 4;
  EXPECT_EQ(call(), CUBLAS_STATUS_NOT_SUPPORTED);
  call.offset_a = 0;
  call.algorithm = {};
  EXPECT_EQ(call(), CUBLAS_STATUS_INVALID_VALUE);
}

TEST(SimulatedMatmulRefusals, MatricesThatAreMissing) {
  Call call(plain);
  call.beta = 1;
  EXPECT_EQ(call(), CUBLAS_STATUS_INVALID_VALUE);
  call.c = call.d.data();
  EXPECT_EQ(call(), CUBLAS_STATUS_SUCCESS);
  // In place, C and D must have one layout.
  Descriptors::set(call.descriptors.c, CUBLASLT_MATRIX_LAYOUT_LD, std::int64_t{17});
  EXPECT_EQ(call(), CUBLAS_STATUS_INVALID_VALUE);
}

TEST(SimulatedMatmulRefusals, TooLittleOrMisalignedWorkspace) {
  Call call({.m = 4, .n = 4, .k = 1024});
  ASSERT_GT(call.descriptors.found[0].workspaceSize, 0u);
  call.workspace_bytes = 16;
  EXPECT_EQ(call(), CUBLAS_STATUS_INVALID_VALUE);
  call.workspace_bytes = 4096;
  call.offset_workspace = 16;
  EXPECT_EQ(call(), CUBLAS_STATUS_INVALID_VALUE);
}

}  // namespace
}  // namespace simgpu::test
