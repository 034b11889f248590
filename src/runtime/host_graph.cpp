#include "runtime/host_graph.hpp"

#include "lockstep/core/error.hpp"

namespace lockstep {

void HostGraph::check_is_host(StreamRef stream) {
  LOCKSTEP_CHECK(stream.device.is_cpu(), Unsupported, "work on ", stream.device,
                 " in a step that is captured on the CPU; keep it out of the step");
}

}  // namespace lockstep
