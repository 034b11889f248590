#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <random>
#include <vector>

#include <cublasLt.h>

#include "device_buffer.hpp"
#include "lockstep/core/bfloat16.hpp"
#include "lockstep/core/half.hpp"

/// @file
/// Products of the simulated cuBLASLt, and the plain loops that they are compared with.

namespace simgpu::test {

/// Calls `function` with a value of the C++ type of an element type.
template <class Function>
auto with_type(cudaDataType_t type, Function&& function) {
  switch (type) {
    case CUDA_R_64F: return function(double{});
    case CUDA_R_16F: return function(lockstep::Half{});
    case CUDA_R_16BF: return function(lockstep::BFloat16{});
    default: return function(float{});
  }
}

/// Numbers as elements of a type, and back.
inline std::vector<std::byte> encode(const std::vector<double>& values, cudaDataType_t type) {
  return with_type(type, [&](auto sample) {
    using T = decltype(sample);
    std::vector<std::byte> bytes(values.size() * sizeof(T));
    for (std::size_t i = 0; i < values.size(); ++i) {
      T element;
      if constexpr (std::is_same_v<T, double>)
        element = values[i];
      else
        element = T(static_cast<float>(values[i]));
      std::memcpy(bytes.data() + i * sizeof(T), &element, sizeof element);
    }
    return bytes;
  });
}
inline std::vector<double> decode(const std::vector<std::byte>& bytes, cudaDataType_t type) {
  return with_type(type, [&](auto sample) {
    using T = decltype(sample);
    std::vector<double> values(bytes.size() / sizeof(T));
    for (std::size_t i = 0; i < values.size(); ++i) {
      T element;
      std::memcpy(&element, bytes.data() + i * sizeof(T), sizeof element);
      if constexpr (std::is_same_v<T, double>)
        values[i] = element;
      else
        values[i] = static_cast<double>(static_cast<float>(element));
    }
    return values;
  });
}

/// Values between -1 and 1 that the type represents.
inline std::vector<double> random_values(std::size_t count, unsigned seed, cudaDataType_t type) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<double> between(-1, 1);
  std::vector<double> values(count);
  for (double& value : values) value = between(engine);
  return decode(encode(values, type), type);
}

/// A matrix of a call.
struct MatrixShape {
  std::int64_t rows = 1, columns = 1;
  std::int64_t leading = 0;  ///< 0: dense
  bool row_major = false;
  std::int64_t batch_stride = 0;  ///< 0: dense

  std::int64_t pitch() const { return leading ? leading : row_major ? columns : rows; }
  std::int64_t stride() const { return batch_stride ? batch_stride : entry(); }
  std::int64_t entry() const { return pitch() * (row_major ? rows : columns); }
  std::size_t at(std::int64_t batch, std::int64_t row, std::int64_t column) const {
    return static_cast<std::size_t>(batch * stride() + (row_major ? row : column) * pitch() +
                                    (row_major ? column : row));
  }
  std::size_t size(std::int64_t batch) const {
    return static_cast<std::size_t>((batch - 1) * stride() + entry());
  }
};

/// One product and everything that may vary about it.
struct Product {
  std::int64_t m = 1, n = 1, k = 1, batch = 1;
  cudaDataType_t in = CUDA_R_32F, out = CUDA_R_32F;
  bool transpose_a = false, transpose_b = false;
  bool row_major = false;  ///< all matrices
  std::int64_t pad = 0;    ///< added to every leading dimension
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  double alpha = 1, beta = 0;
  bool factors_on_device = false;

  bool wide() const { return in == CUDA_R_64F; }
  MatrixShape shape(std::int64_t rows, std::int64_t columns) const {
    MatrixShape result{.rows = rows, .columns = columns, .row_major = row_major};
    result.leading = (row_major ? columns : rows) + pad;
    return result;
  }
  MatrixShape a() const { return transpose_a ? shape(k, m) : shape(m, k); }
  MatrixShape b() const { return transpose_b ? shape(n, k) : shape(k, n); }
  MatrixShape d() const { return shape(m, n); }
  std::int64_t aux_leading() const { return (m + 7) / 8 * 8; }
};

/// The descriptors of a product.
class Descriptors {
 public:
  explicit Descriptors(const Product& product) {
    const auto type = product.wide() ? CUDA_R_64F : CUDA_R_32F;
    EXPECT_EQ(cublasLtCreate(&handle), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtMatmulDescCreate(
                  &operation, product.wide() ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F, type),
              CUBLAS_STATUS_SUCCESS);
    set(CUBLASLT_MATMUL_DESC_TRANSA, product.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, product.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, product.epilogue);
    if (product.factors_on_device)
      set(CUBLASLT_MATMUL_DESC_POINTER_MODE, CUBLASLT_POINTER_MODE_DEVICE);
    a = layout(product.a(), product.in, product.batch);
    b = layout(product.b(), product.in, product.batch);
    c = layout(product.d(), product.out, product.batch);
    d = layout(product.d(), product.out, product.batch);
    EXPECT_EQ(cublasLtMatmulPreferenceCreate(&preference), CUBLAS_STATUS_SUCCESS);
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{1} << 25);
  }
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;
  ~Descriptors() {
    for (cublasLtMatrixLayout_t each : {a, b, c, d}) cublasLtMatrixLayoutDestroy(each);
    cublasLtMatmulPreferenceDestroy(preference);
    cublasLtMatmulDescDestroy(operation);
    cublasLtDestroy(handle);
  }

  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    EXPECT_EQ(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value),
              CUBLAS_STATUS_SUCCESS);
  }
  template <class T>
  void prefer(cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
    EXPECT_EQ(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
              CUBLAS_STATUS_SUCCESS);
  }
  template <class T>
  static void set(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute,
                  const T& value) {
    EXPECT_EQ(cublasLtMatrixLayoutSetAttribute(layout, attribute, &value, sizeof value),
              CUBLAS_STATUS_SUCCESS);
  }
  /// Asks the heuristics for up to two algorithms.
  cublasStatus_t choose() {
    return cublasLtMatmulAlgoGetHeuristic(handle, operation, a, b, c, d, preference, 2, found,
                                          &count);
  }

  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr, d = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatmulHeuristicResult_t found[2] = {};
  int count = 0;

 private:
  static cublasLtMatrixLayout_t layout(const MatrixShape& shape, cudaDataType_t type,
                                       std::int64_t batch) {
    cublasLtMatrixLayout_t result = nullptr;
    EXPECT_EQ(cublasLtMatrixLayoutCreate(&result, type, static_cast<std::uint64_t>(shape.rows),
                                         static_cast<std::uint64_t>(shape.columns), shape.pitch()),
              CUBLAS_STATUS_SUCCESS);
    set(result, CUBLASLT_MATRIX_LAYOUT_ORDER,
        shape.row_major ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL);
    set(result, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(batch));
    set(result, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, shape.stride());
    return result;
  }
};

}  // namespace simgpu::test
