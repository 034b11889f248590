#include <new>

#include "cublaslt/descriptors.hpp"
#include "engine/entry.hpp"
#include "engine/host.hpp"

using simgpu::Allowed;
using simgpu::EntryPoint;

struct cublasLtContext {
  int device;  ///< that was current when it was made
};

int simgpu::cublaslt::device_of(cublasLtHandle_t handle) { return handle->device; }

namespace {

/// Counts a call that cannot fail.
void count(EntryPoint& entry) {
  static_cast<void>(entry.call([] { return CUBLAS_STATUS_SUCCESS; }));
}

}  // namespace

cublasStatus_t cublasLtCreate(cublasLtHandle_t* lightHandle) {
  static EntryPoint entry("cublasLtCreate");
  return entry.call([&] {
    if (!lightHandle) return CUBLAS_STATUS_INVALID_VALUE;
    *lightHandle = new (std::nothrow) cublasLtContext{simgpu::current_device()};
    return *lightHandle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
  });
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t lightHandle) {
  static EntryPoint entry("cublasLtDestroy", Allowed::always);
  return entry.call([&] {
    if (!lightHandle) return CUBLAS_STATUS_NOT_INITIALIZED;
    delete lightHandle;
    return CUBLAS_STATUS_SUCCESS;
  });
}

const char* cublasLtGetStatusName(cublasStatus_t status) {
  static EntryPoint entry("cublasLtGetStatusName", Allowed::always);
  count(entry);
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH: return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_MAPPING_ERROR: return "CUBLAS_STATUS_MAPPING_ERROR";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR: return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_LICENSE_ERROR: return "CUBLAS_STATUS_LICENSE_ERROR";
  }
  return "CUBLAS_STATUS_UNKNOWN";
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
  static EntryPoint entry("cublasLtGetStatusString", Allowed::always);
  count(entry);
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "the library was not initialized";
    case CUBLAS_STATUS_ALLOC_FAILED: return "the resource allocation failed";
    case CUBLAS_STATUS_INVALID_VALUE: return "an invalid value was used as an argument";
    case CUBLAS_STATUS_ARCH_MISMATCH: return "an absent device architectural feature is required";
    case CUBLAS_STATUS_MAPPING_ERROR: return "an access to GPU memory space failed";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "the GPU program failed to execute";
    case CUBLAS_STATUS_INTERNAL_ERROR: return "an internal operation failed";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "the functionality is not supported";
    case CUBLAS_STATUS_LICENSE_ERROR: return "the licence was not checked";
  }
  return "unknown status";
}

size_t cublasLtGetVersion() {
  static EntryPoint entry("cublasLtGetVersion", Allowed::always);
  count(entry);
  return CUBLAS_VERSION;
}

size_t cublasLtGetCudartVersion() {
  static EntryPoint entry("cublasLtGetCudartVersion", Allowed::always);
  count(entry);
  int version = 0;
  static_cast<void>(cudaRuntimeGetVersion(&version));
  return static_cast<size_t>(version);
}

cublasStatus_t cublasLtGetProperty(libraryPropertyType type, int* value) {
  static EntryPoint entry("cublasLtGetProperty", Allowed::always);
  count(entry);
  if (!value) return CUBLAS_STATUS_INVALID_VALUE;
  switch (type) {
    case MAJOR_VERSION: *value = CUBLAS_VER_MAJOR; return CUBLAS_STATUS_SUCCESS;
    case MINOR_VERSION: *value = CUBLAS_VER_MINOR; return CUBLAS_STATUS_SUCCESS;
    case PATCH_LEVEL: *value = CUBLAS_VER_PATCH; return CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}
