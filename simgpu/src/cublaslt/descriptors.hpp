#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cublasLt.h"

/// @file
/// What is behind cuBLASLt's opaque pointers.

namespace simgpu::cublaslt {

/// A matrix in memory.
struct MatrixLayout : cublasLtMatrixLayoutOpaque_t {
  std::uint32_t type = CUDA_R_32F;
  std::int32_t order = CUBLASLT_ORDER_COL;
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  std::int64_t leading = 0;
  std::int32_t batch_count = 1;
  std::int64_t batch_stride = 0;
};

/// What a product does besides multiplying.
struct MatmulDescription : cublasLtMatmulDescOpaque_t {
  std::int32_t compute_type = CUBLAS_COMPUTE_32F;
  std::int32_t scale_type = CUDA_R_32F;
  std::int32_t pointer_mode = CUBLASLT_POINTER_MODE_HOST;
  std::int32_t transpose_a = CUBLAS_OP_N;
  std::int32_t transpose_b = CUBLAS_OP_N;
  std::int32_t transpose_c = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
  std::int32_t bias_type = -1;
  std::int64_t bias_batch_stride = 0;
  void* aux = nullptr;
  std::int32_t aux_type = -1;
  std::int64_t aux_leading = 0;
  std::int64_t aux_batch_stride = 0;
  std::int32_t sm_count_target = 0;
};

/// What the heuristics may choose from.
struct Preference : cublasLtMatmulPreferenceOpaque_t {
  std::uint32_t search_mode = 0;
  std::uint64_t max_workspace = 0;
  std::uint32_t reduction_schemes = 7;
  std::uint32_t align_a = 256, align_b = 256, align_c = 256, align_d = 256;
  float max_waves = 0.0F;
  std::uint64_t implementations = ~std::uint64_t{0};
};

/// The objects behind the pointers of the interface.
inline MatrixLayout* of(cublasLtMatrixLayout_t handle) {
  return static_cast<MatrixLayout*>(handle);
}
inline MatmulDescription* of(cublasLtMatmulDesc_t handle) {
  return static_cast<MatmulDescription*>(handle);
}
inline Preference* of(cublasLtMatmulPreference_t handle) {
  return static_cast<Preference*>(handle);
}

/// Sets the attribute that it is called with from a caller's buffer.
struct SetFrom {
  const void* buffer;
  std::size_t bytes;

  template <class T>
  cublasStatus_t operator()(T& field) const {
    if (!buffer || bytes != sizeof field) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&field, buffer, sizeof field);
    return CUBLAS_STATUS_SUCCESS;
  }
};

/// Copies the attribute that it is called with into a caller's buffer, or tells its size.
struct GetInto {
  void* buffer;
  std::size_t bytes;
  std::size_t* written;

  template <class T>
  cublasStatus_t operator()(const T& field) const {
    if (bytes == 0 && !written) return CUBLAS_STATUS_INVALID_VALUE;
    if (written) *written = sizeof field;
    if (bytes == 0) return CUBLAS_STATUS_SUCCESS;
    if (!buffer || bytes != sizeof field) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(buffer, &field, sizeof field);
    return CUBLAS_STATUS_SUCCESS;
  }
};

/// The device of a handle.
int device_of(cublasLtHandle_t handle);

}  // namespace simgpu::cublaslt
