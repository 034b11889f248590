#include "runtime/runtimes.hpp"

namespace lockstep {

DeviceRuntime* cuda_runtime() { return nullptr; }

std::vector<Component> runtime_components() { return {}; }

}  // namespace lockstep
