#include "engine/event_points.hpp"

#include <algorithm>

namespace simgpu {

void record_point(CUevent_st& event, Queue& queue, VirtualTime now) {
  event.is_recorded = true;
  ++event.recordings;
  event.task = queue.last;
  event.queue = queue.number;
  event.time = std::max(queue.free_at, now);
  event.clock = queue.clock;
  event.capture = nullptr;
  event.frontier.clear();
}

void follow_point(const CUevent_st& event, Queue& queue, std::vector<TaskPtr>& after) {
  if (!event.is_recorded) return;
  queue.clock.join(event.clock);
  if (event.task != nullptr) after.push_back(event.task);
}

}  // namespace simgpu
