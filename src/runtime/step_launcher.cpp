#include "runtime/step_launcher.hpp"

#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/runtime/device_runtime.hpp"

namespace lockstep {

void StepLauncher::set(void* graph) {
  const std::lock_guard lock(mutex_);
  graph_ = graph;
}

void StepLauncher::launch(StreamRef stream) const {
  const std::lock_guard lock(mutex_);
  LOCKSTEP_CHECK(graph_, Unsupported, "a captured step cannot be launched: ", why_);
  device_runtime(device_.type).launch_graph(graph_, stream);
}

void StepLauncher::end(const std::string& why) noexcept {
  const std::lock_guard lock(mutex_);
  if (void* const graph = std::exchange(graph_, nullptr))
    device_runtime(device_.type).destroy_graph(device_, graph);
  if (std::exchange(has_ended_, true)) return;
  try {
    why_ = why;
  } catch (...) {
    // No host memory is left for the reason.
  }
}

std::string StepLauncher::why_it_ended() const {
  const std::lock_guard lock(mutex_);
  return why_;
}

}  // namespace lockstep
