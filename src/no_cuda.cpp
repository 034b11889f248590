#include "backend/backend.hpp"
#include "backend/info.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/runtime/info.hpp"
#include "memory/device_allocators.hpp"
#include "runtime/device_identity.hpp"
#include "runtime/runtimes.hpp"

// A build without CUDA.

namespace lockstep {

DeviceRuntime* cuda_runtime() { return nullptr; }

void copy_between_gpus(void*, const void*, Device, std::size_t, StreamRef) {
  LOCKSTEP_THROW(Unsupported, "this lockstep was built without CUDA");
}

std::string cuda_device_identity(int) {
  LOCKSTEP_THROW(Unsupported, "this lockstep was built without CUDA");
}

void set_home_cuda_device(int) {
  LOCKSTEP_THROW(Unsupported, "this lockstep was built without CUDA");
}

std::vector<Component> runtime_components() { return {}; }

MemoryPool* cuda_allocator(int) { return nullptr; }
std::unique_ptr<MemoryPool> new_cuda_pool(int) { return nullptr; }
Allocator* cuda_pinned_allocator() { return nullptr; }

namespace backend {

const Backend* cuda() { return nullptr; }
std::string cublaslt_version() { return {}; }

}  // namespace backend
}  // namespace lockstep
