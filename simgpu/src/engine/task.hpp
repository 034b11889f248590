#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "engine/race_detector.hpp"
#include "profile/profile.hpp"

/// @file
/// An operation in its queue.

namespace simgpu {

/// Ticks of the virtual clock: one for each call of the host.
using VirtualTime = std::uint64_t;

class Queue;

/// A queued operation. Guarded by the machine's mutex, but for `run`, which only the executor uses.
struct Task {
  std::shared_ptr<const Actor> actor;
  std::function<bool()> run;     ///< empty: a point in time only
  std::vector<Access> accesses;  ///< but for those that are bounds
  bool accesses_are_bounds = false;
  bool meets_peers = false;
  profile::Origin origin = {};  ///< id 0: it has no record
  profile::Fields profile = {};
  std::uint64_t graph_launch = 0;  ///< the launch that it is a node of; 0: none
  /// Of a node: its record, or where it has none, those of the nodes that it follows.
  std::vector<std::uint64_t> records = {};

  Queue* queue = nullptr;
  std::uint64_t number = 0;    ///< in the order of the calls
  std::uint64_t position = 0;  ///< in its queue
  VirtualTime start = 0;
  VirtualTime end = 0;
  std::vector<std::shared_ptr<Task>> after;  ///< besides the one before it in the queue

  bool done = false;
  bool demanded = false;    ///< may run now, whatever its virtual start
  bool is_awaited = false;  ///< a thread of the host sleeps until it is done
  bool is_stalled = false;  ///< fault injection: never runs
  unsigned queries = 0;     ///< times that the host asked for it in vain
  /// In the random order, how many tasks were queued by then: `queries` counts anew behind another.
  std::uint64_t asked_among = 0;
  /// When it was first tried in vain, because its peers were not there.
  std::optional<std::chrono::steady_clock::time_point> waiting_since;
  std::chrono::steady_clock::time_point last_try;
  /// Once it is done: how long it, and those before it in its queue, have waited for peers.
  std::chrono::steady_clock::duration waited{};

  /// Before the other one in virtual time.
  bool precedes(const Task& other) const {
    return start != other.start ? start < other.start : number < other.number;
  }
};

using TaskPtr = std::shared_ptr<Task>;

}  // namespace simgpu
