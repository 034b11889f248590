#include <new>

#include "cublaslt/descriptors.hpp"
#include "engine/entry.hpp"

using namespace simgpu;
using namespace simgpu::cublaslt;

namespace {

template <class Visit>
cublasStatus_t visit_description(MatmulDescription* description,
                                 cublasLtMatmulDescAttributes_t attribute, const Visit& with) {
  if (!description) return CUBLAS_STATUS_INVALID_VALUE;
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE: return with(description->compute_type);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE: return with(description->scale_type);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE: return with(description->pointer_mode);
    case CUBLASLT_MATMUL_DESC_TRANSA: return with(description->transpose_a);
    case CUBLASLT_MATMUL_DESC_TRANSB: return with(description->transpose_b);
    case CUBLASLT_MATMUL_DESC_TRANSC: return with(description->transpose_c);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return with(description->epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return with(description->bias);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE: return with(description->bias_batch_stride);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: return with(description->aux);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: return with(description->aux_leading);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE: return with(description->aux_batch_stride);
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET: return with(description->sm_count_target);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE: return with(description->aux_type);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return with(description->bias_type);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

}  // namespace

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* matmulDesc,
                                        cublasComputeType_t computeType, cudaDataType_t scaleType) {
  static EntryPoint entry("cublasLtMatmulDescCreate");
  return entry.call([&]() -> cublasStatus_t {
    if (!matmulDesc) return CUBLAS_STATUS_INVALID_VALUE;
    auto* description = new (std::nothrow) MatmulDescription;
    if (!description) return CUBLAS_STATUS_ALLOC_FAILED;
    description->compute_type = computeType;
    description->scale_type = scaleType;
    *matmulDesc = description;
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t matmulDesc) {
  static EntryPoint entry("cublasLtMatmulDescDestroy", Allowed::always);
  return entry.call([&]() -> cublasStatus_t {
    delete of(matmulDesc);
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t matmulDesc,
                                              cublasLtMatmulDescAttributes_t attr, const void* buf,
                                              size_t sizeInBytes) {
  static EntryPoint entry("cublasLtMatmulDescSetAttribute");
  return entry.call([&]() -> cublasStatus_t {
    return visit_description(of(matmulDesc), attr, SetFrom{buf, sizeInBytes});
  });
}

cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t matmulDesc,
                                              cublasLtMatmulDescAttributes_t attr, void* buf,
                                              size_t sizeInBytes, size_t* sizeWritten) {
  static EntryPoint entry("cublasLtMatmulDescGetAttribute");
  return entry.call([&]() -> cublasStatus_t {
    return visit_description(of(matmulDesc), attr, GetInto{buf, sizeInBytes, sizeWritten});
  });
}
