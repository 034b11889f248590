#pragma once

#include "cublas_v2.h"

/// What is behind cuBLAS's handle.
struct cublasContext {
  cublasLtHandle_t products = nullptr;
  cudaStream_t stream = nullptr;
  cublasMath_t math = CUBLAS_DEFAULT_MATH;
  cublasPointerMode_t pointers = CUBLAS_POINTER_MODE_HOST;
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
};
