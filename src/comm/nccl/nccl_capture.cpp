#include <sstream>
#include <vector>

#include "comm/nccl/launch_order.hpp"
#include "comm/nccl/nccl_backend.hpp"
#include "comm/stream_order.hpp"
#include "lockstep/core/error.hpp"

// Operations in a step that is captured once and launched many times. Nothing runs while it is
// captured; each launch counts, is told to the other ranks and has its deadline as a whole.

namespace lockstep::comm {

struct NcclBackend::Captured {
  std::vector<Operation> operations;  // as the caller gave them, in order
  WorkPtr work;                       // of the launch that is being queued
};

// A message that connects two ranks is made once, not in each launch.
void NcclBackend::refuse_first_message(int peer, StepRecording& recording) const {
  lockstep::detail::TextStream reason;
  reason << "it has the first message between ranks " << rank() << " and " << peer << " of "
         << name() << ", which connects them";
  recording.refuse(reason.str());
  recording.suggest_another_try();
}

Work NcclBackend::capture(std::span<Operation> operations, StepRecording& recording) {
  LOCKSTEP_CHECK(recording.stream().device == device(), Unsupported, "a collective on ", device(),
                 " in a step that is captured on ", recording.stream().device);
  const bool leaves_out = size() > 1 && !recording.captures_collectives_of(name());
  const std::vector<int> strangers = contacts_.first_reached_by(operations);
  if (!strangers.empty()) refuse_first_message(strangers.front(), recording);
  if (recording.meets(this)) {
    captured_ = std::make_shared<Captured>();
    std::erase_if(launchers_, [](const auto& launcher) { return launcher.expired(); });
    launchers_.push_back(recording.launcher());
    recording.before_launch([this, captured = captured_] { begin_launch(*captured); });
    recording.after_launch([this, captured = captured_] { end_launch(*captured); });
  }
  std::vector<Operation>& all = captured_->operations;
  const std::size_t first = all.size();
  all.insert(all.end(), operations.begin(), operations.end());
  for (std::size_t i = first; i < all.size(); ++i) all[i].captured = true;
  recording.before_launch([this, captured = captured_, first, end = all.size()] {
    for (std::size_t i = first; i < end; ++i) {
      Operation& operation = captured->operations[i];
      if (operation.renew) operation.renew(operation.label, operation.id);
      tell(operation);
    }
  });
  recording.fork(stream_);
  return Work(queue(operations, leaves_out || !strangers.empty()));
}

// NCCL's communicator does not come to its end as long as there are graphs with its collectives.
void NcclBackend::end_captured_steps() noexcept {
  for (const auto& launcher : launchers_)
    if (const auto graph = launcher.lock())
      graph->end("the communicator " + name() + " has ended since the step was captured");
}

void NcclBackend::begin_launch(Captured& captured) {
  if (has_left_) refuse_after_leaving();
  group_->raise_if_failed();
  number(captured.operations, sequence_);
  const StreamRef current = current_stream(device());
  order_after(stream_, current);
  LaunchOrder::of(device()).order_before(current);
  captured.work = make_intrusive<NcclWork>(group_, current, captured.operations);
}

void NcclBackend::end_launch(Captured& captured) {
  const WorkPtr work = std::exchange(captured.work, {});
  work->finish(current_stream(device()));
  work->rename(captured.operations);
  begin_watch(work);
  raise_if_lost(*work);
}

}  // namespace lockstep::comm
