#include "cublas/handle.hpp"

#include <memory>

#include "engine/entry.hpp"

using simgpu::Allowed;
using simgpu::EntryPoint;

namespace {

/// Changes a handle, if there is one.
template <class Change>
cublasStatus_t with(cublasHandle_t handle, const Change& change) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  change(*handle);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  static EntryPoint entry("cublasCreate_v2");
  return entry.call([&] {
    if (!handle) return CUBLAS_STATUS_INVALID_VALUE;
    auto made = std::make_unique<cublasContext>();
    const cublasStatus_t status = cublasLtCreate(&made->products);
    if (status == CUBLAS_STATUS_SUCCESS) *handle = made.release();
    return status;
  });
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  static EntryPoint entry("cublasDestroy_v2", Allowed::always);
  return entry.call([&] {
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    const std::unique_ptr<cublasContext> owner(handle);
    return cublasLtDestroy(owner->products);
  });
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  static EntryPoint entry("cublasSetStream_v2");
  return entry.call([&] {
    return with(handle, [&](cublasContext& to) {
      to.stream = stream;
      to.workspace = nullptr;  // as the original: back to its own
    });
  });
}

cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t* stream) {
  static EntryPoint entry("cublasGetStream_v2");
  return entry.call([&] {
    if (!stream) return CUBLAS_STATUS_INVALID_VALUE;
    return with(handle, [&](const cublasContext& from) { *stream = from.stream; });
  });
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace, size_t bytes) {
  static EntryPoint entry("cublasSetWorkspace_v2");
  return entry.call([&] {
    return with(handle, [&](cublasContext& to) {
      to.workspace = workspace;
      to.workspace_bytes = bytes;
    });
  });
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  static EntryPoint entry("cublasSetMathMode");
  return entry.call([&] { return with(handle, [&](cublasContext& to) { to.math = mode; }); });
}

cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode) {
  static EntryPoint entry("cublasGetMathMode");
  return entry.call([&] {
    if (!mode) return CUBLAS_STATUS_INVALID_VALUE;
    return with(handle, [&](const cublasContext& from) { *mode = from.math; });
  });
}

cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
  static EntryPoint entry("cublasSetPointerMode_v2");
  return entry.call([&] { return with(handle, [&](cublasContext& to) { to.pointers = mode; }); });
}

const char* cublasGetStatusName(cublasStatus_t status) { return cublasLtGetStatusName(status); }
const char* cublasGetStatusString(cublasStatus_t status) { return cublasLtGetStatusString(status); }
