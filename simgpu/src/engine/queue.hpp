#pragma once

#include <deque>
#include <string>

#include "engine/task.hpp"

/// @file
/// The order of one stream, or of one branch of a graph.

namespace simgpu {

/// Tasks that run one after the other. Guarded by the machine's mutex.
class Queue {
 public:
  Queue(int its_device, unsigned its_number, Component its_component, std::string its_name)
      : device(its_device),
        number(its_number),
        component(its_component),
        name(std::move(its_name)) {}

  const int device;
  const unsigned number;  ///< as reports and faults count streams; 0 is the legacy default stream
  const Component component;
  std::string name;  ///< "stream 3 (non-blocking, device 0)"

  std::deque<TaskPtr> waiting;  ///< not done yet, oldest first
  std::deque<TaskPtr> future;   ///< what the host's clock is not past, as it was looked at last
  TaskPtr last;                 ///< the youngest task, done or not; may be null
  std::uint64_t queued = 0;     ///< tasks so far
  VectorClock clock;            ///< after the youngest task
  VirtualTime free_at = 0;      ///< the end of the youngest task
  std::chrono::steady_clock::duration waited{};  ///< for peers, by the tasks that are done
  bool retired = false;                          ///< ends when nothing waits
};

}  // namespace simgpu
