#include <memory>
#include <vector>

#include "comm/host/host_backend.hpp"
#include "runtime/host_graph.hpp"
#include "runtime/step_recording.hpp"

// Operations in a step that is captured once and launched many times on the CPU: each launch
// submits them anew, and waits for them where the step did.

namespace lockstep::comm::host {
namespace {

/// Of the last launch; complete as long as there is none.
class CapturedHostWork final : public WorkState {
 public:
  Work now;

  void wait() override {
    if (HostGraph* const graph = HostGraph::recording())
      graph->add([self = IntrusivePtr<CapturedHostWork>(this)] { self->now.wait(); });
    else
      now.wait();
  }
  void synchronize() override {
    refuse_in_captured_step("the host waits for a collective", "let the stream wait()");
    now.synchronize();
  }
  bool is_completed() const override { return now.is_completed(); }
  std::exception_ptr exception() const override { return now.exception(); }
  std::optional<WorkTimes> times() const override { return now.times(); }
};

}  // namespace

Work HostBackend::capture(std::span<Operation> operations, StepRecording& recording) {
  if (recording.meets(this))
    recording.when_launch_fails([this](const std::string& reason) {
      if (size() > 1)
        abort("rank " + std::to_string(rank()) + ": a captured step failed: " + reason);
    });
  const auto captured =
      std::make_shared<std::vector<Operation>>(operations.begin(), operations.end());
  const auto work = make_intrusive<CapturedHostWork>();
  recording.before_launch([captured] {
    for (Operation& operation : *captured)
      if (operation.renew) operation.renew(operation.label, operation.id);
  });
  HostGraph::recording()->add([this, captured, work] {
    std::vector<Operation> once = *captured;
    work->now = submit(once);
  });
  return Work(work);
}

}  // namespace lockstep::comm::host
