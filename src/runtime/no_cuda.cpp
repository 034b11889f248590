#include "lockstep/core/error.hpp"
#include "lockstep/runtime/info.hpp"
#include "runtime/device_identity.hpp"
#include "runtime/runtimes.hpp"

namespace lockstep {

DeviceRuntime* cuda_runtime() { return nullptr; }

std::string cuda_device_identity(int) {
  LOCKSTEP_THROW(Unsupported, "this lockstep was built without CUDA");
}

void set_home_cuda_device(int) {
  LOCKSTEP_THROW(Unsupported, "this lockstep was built without CUDA");
}

std::vector<Component> runtime_components() { return {}; }

}  // namespace lockstep
