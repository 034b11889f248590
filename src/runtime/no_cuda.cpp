#include "runtime/runtimes.hpp"

namespace lockstep {

DeviceRuntime* cuda_runtime() { return nullptr; }

}  // namespace lockstep
