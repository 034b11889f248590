#include <cstdint>

#include "cublas/handle.hpp"
#include "engine/entry.hpp"

/// @file
/// Products: each is one of cuBLASLt.

using simgpu::EntryPoint;

namespace {

struct Operand {
  const void* data;
  cudaDataType type;
  int leading;
  std::int64_t stride = 0;
};

struct Product {
  cublasOperation_t transpose_a, transpose_b;
  int m, n, k;
  int batch;
  cublasComputeType_t compute;
  const void *alpha, *beta;
  Operand a, b, c;
};

/// A layout of cuBLASLt for its scope.
class Layout {
 public:
  Layout(const Operand& of, int rows, int columns, int batch) {
    status_ = cublasLtMatrixLayoutCreate(&layout_, of.type, static_cast<std::uint64_t>(rows),
                                         static_cast<std::uint64_t>(columns), of.leading);
    if (status_ != CUBLAS_STATUS_SUCCESS || batch == 1) return;
    status_ = cublasLtMatrixLayoutSetAttribute(layout_, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                                               sizeof batch);
    if (status_ != CUBLAS_STATUS_SUCCESS) return;
    status_ = cublasLtMatrixLayoutSetAttribute(layout_, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                               &of.stride, sizeof of.stride);
  }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  ~Layout() { static_cast<void>(cublasLtMatrixLayoutDestroy(layout_)); }

  cublasStatus_t status() const { return status_; }
  cublasLtMatrixLayout_t get() const { return layout_; }

 private:
  cublasLtMatrixLayout_t layout_ = nullptr;
  cublasStatus_t status_;
};

/// The type of alpha and beta.
cudaDataType scale_of(cublasComputeType_t compute) {
  const bool wide = compute == CUBLAS_COMPUTE_64F || compute == CUBLAS_COMPUTE_64F_PEDANTIC;
  return wide ? CUDA_R_64F : CUDA_R_32F;
}

/// TF32 where the handle allows it.
cublasComputeType_t compute_of(const cublasContext& handle, const Product& product) {
  const bool may_round = handle.math == CUBLAS_TF32_TENSOR_OP_MATH &&
                         product.compute == CUBLAS_COMPUTE_32F && product.a.type == CUDA_R_32F;
  return may_round ? CUBLAS_COMPUTE_32F_FAST_TF32 : product.compute;
}

cublasStatus_t describe(cublasLtMatmulDesc_t description, const cublasContext& handle,
                        const Product& product) {
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, std::int32_t value) {
    return cublasLtMatmulDescSetAttribute(description, attribute, &value, sizeof value);
  };
  for (const cublasStatus_t status : {set(CUBLASLT_MATMUL_DESC_TRANSA, product.transpose_a),
                                      set(CUBLASLT_MATMUL_DESC_TRANSB, product.transpose_b),
                                      set(CUBLASLT_MATMUL_DESC_POINTER_MODE, handle.pointers)})
    if (status != CUBLAS_STATUS_SUCCESS) return status;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t multiply_by(cublasLtMatmulDesc_t description, const cublasContext& handle,
                           const Product& product) {
  if (const cublasStatus_t status = describe(description, handle, product);
      status != CUBLAS_STATUS_SUCCESS)
    return status;
  const bool turned_a = product.transpose_a != CUBLAS_OP_N,
             turned_b = product.transpose_b != CUBLAS_OP_N;
  const Layout a(product.a, turned_a ? product.k : product.m, turned_a ? product.m : product.k,
                 product.batch);
  const Layout b(product.b, turned_b ? product.n : product.k, turned_b ? product.k : product.n,
                 product.batch);
  const Layout c(product.c, product.m, product.n, product.batch);
  for (const Layout* layout : {&a, &b, &c})
    if (layout->status() != CUBLAS_STATUS_SUCCESS) return layout->status();
  return cublasLtMatmul(handle.products, description, product.alpha, product.a.data, a.get(),
                        product.b.data, b.get(), product.beta, product.c.data, c.get(),
                        const_cast<void*>(product.c.data), c.get(), nullptr, handle.workspace,
                        handle.workspace_bytes, handle.stream);
}

cublasStatus_t multiply(cublasHandle_t handle, const Product& product) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (product.m < 0 || product.n < 0 || product.k < 0 || product.batch < 0)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (product.m == 0 || product.n == 0 || product.batch == 0) return CUBLAS_STATUS_SUCCESS;
  cublasLtMatmulDesc_t description = nullptr;
  cublasStatus_t status = cublasLtMatmulDescCreate(&description, compute_of(*handle, product),
                                                   scale_of(product.compute));
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  status = multiply_by(description, *handle, product);
  static_cast<void>(cublasLtMatmulDescDestroy(description));
  return status;
}

}  // namespace

cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t transa,
                              cublasOperation_t transb, int m, int n, int k, const float* alpha,
                              const float* A, int lda, const float* B, int ldb, const float* beta,
                              float* C, int ldc) {
  static EntryPoint entry("cublasSgemm_v2");
  return entry.call([&] {
    return multiply(handle, {transa,
                             transb,
                             m,
                             n,
                             k,
                             1,
                             CUBLAS_COMPUTE_32F,
                             alpha,
                             beta,
                             {A, CUDA_R_32F, lda},
                             {B, CUDA_R_32F, ldb},
                             {C, CUDA_R_32F, ldc}});
  });
}

cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t transa,
                                         cublasOperation_t transb, int m, int n, int k,
                                         const float* alpha, const float* A, int lda,
                                         long long int strideA, const float* B, int ldb,
                                         long long int strideB, const float* beta, float* C,
                                         int ldc, long long int strideC, int batchCount) {
  static EntryPoint entry("cublasSgemmStridedBatched");
  return entry.call([&] {
    return multiply(handle, {transa,
                             transb,
                             m,
                             n,
                             k,
                             batchCount,
                             CUBLAS_COMPUTE_32F,
                             alpha,
                             beta,
                             {A, CUDA_R_32F, lda, strideA},
                             {B, CUDA_R_32F, ldb, strideB},
                             {C, CUDA_R_32F, ldc, strideC}});
  });
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa,
                            cublasOperation_t transb, int m, int n, int k, const void* alpha,
                            const void* A, cudaDataType Atype, int lda, const void* B,
                            cudaDataType Btype, int ldb, const void* beta, void* C,
                            cudaDataType Ctype, int ldc, cublasComputeType_t computeType,
                            cublasGemmAlgo_t) {
  static EntryPoint entry("cublasGemmEx");
  return entry.call([&] {
    return multiply(handle, {transa,
                             transb,
                             m,
                             n,
                             k,
                             1,
                             computeType,
                             alpha,
                             beta,
                             {A, Atype, lda},
                             {B, Btype, ldb},
                             {C, Ctype, ldc}});
  });
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t transa,
                                          cublasOperation_t transb, int m, int n, int k,
                                          const void* alpha, const void* A, cudaDataType Atype,
                                          int lda, long long int strideA, const void* B,
                                          cudaDataType Btype, int ldb, long long int strideB,
                                          const void* beta, void* C, cudaDataType Ctype, int ldc,
                                          long long int strideC, int batchCount,
                                          cublasComputeType_t computeType, cublasGemmAlgo_t) {
  static EntryPoint entry("cublasGemmStridedBatchedEx");
  return entry.call([&] {
    return multiply(handle, {transa,
                             transb,
                             m,
                             n,
                             k,
                             batchCount,
                             computeType,
                             alpha,
                             beta,
                             {A, Atype, lda, strideA},
                             {B, Btype, ldb, strideB},
                             {C, Ctype, ldc, strideC}});
  });
}

cublasStatus_t cublasSgemv_v2(cublasHandle_t handle, cublasOperation_t trans, int m, int n,
                              const float* alpha, const float* A, int lda, const float* x, int incx,
                              const float* beta, float* y, int incy) {
  static EntryPoint entry("cublasSgemv_v2");
  return entry.call([&] {
    if (incx != 1 || incy != 1) return CUBLAS_STATUS_NOT_SUPPORTED;
    const bool turned = trans != CUBLAS_OP_N;
    const int rows = turned ? n : m, depth = turned ? m : n;
    return multiply(handle, {trans,
                             CUBLAS_OP_N,
                             rows,
                             1,
                             depth,
                             1,
                             CUBLAS_COMPUTE_32F,
                             alpha,
                             beta,
                             {A, CUDA_R_32F, lda},
                             {x, CUDA_R_32F, depth},
                             {y, CUDA_R_32F, rows}});
  });
}
