#include <cublas_v2.h>

#include "signatures/signature.hpp"

SIGNATURE(cublasStatus_t, cublasCreate_v2, (cublasHandle_t*));
SIGNATURE(cublasStatus_t, cublasDestroy_v2, (cublasHandle_t));
SIGNATURE(cublasStatus_t, cublasSetStream_v2, (cublasHandle_t, cudaStream_t));
SIGNATURE(cublasStatus_t, cublasGetStream_v2, (cublasHandle_t, cudaStream_t*));
SIGNATURE(cublasStatus_t, cublasSetWorkspace_v2, (cublasHandle_t, void*, size_t));
SIGNATURE(cublasStatus_t, cublasSetMathMode, (cublasHandle_t, cublasMath_t));
SIGNATURE(cublasStatus_t, cublasGetMathMode, (cublasHandle_t, cublasMath_t*));
SIGNATURE(cublasStatus_t, cublasSetPointerMode_v2, (cublasHandle_t, cublasPointerMode_t));
SIGNATURE(cublasStatus_t, cublasSgemm_v2,
          (cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const float*,
           const float*, int, const float*, int, const float*, float*, int));
SIGNATURE(cublasStatus_t, cublasSgemmStridedBatched,
          (cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const float*,
           const float*, int, long long, const float*, int, long long, const float*, float*, int,
           long long, int));
SIGNATURE(cublasStatus_t, cublasGemmEx,
          (cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void*,
           const void*, cudaDataType, int, const void*, cudaDataType, int, const void*, void*,
           cudaDataType, int, cublasComputeType_t, cublasGemmAlgo_t));
SIGNATURE(cublasStatus_t, cublasGemmStridedBatchedEx,
          (cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void*,
           const void*, cudaDataType, int, long long, const void*, cudaDataType, int, long long,
           const void*, void*, cudaDataType, int, long long, int, cublasComputeType_t,
           cublasGemmAlgo_t));
SIGNATURE(cublasStatus_t, cublasSgemv_v2,
          (cublasHandle_t, cublasOperation_t, int, int, const float*, const float*, int,
           const float*, int, const float*, float*, int));
CONSTANT(CUBLAS_GEMM_DEFAULT, -1);
CONSTANT(CUBLAS_TF32_TENSOR_OP_MATH, 3);
CONSTANT(CUBLAS_PEDANTIC_MATH, 2);
CONSTANT(CUBLAS_COMPUTE_16F, 64);
