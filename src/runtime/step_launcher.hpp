#pragma once

#include <mutex>
#include <string>

#include "lockstep/runtime/stream.hpp"

/// @file
/// The graph of a captured step.

namespace lockstep {

/// Owns the graph for whoever launches it, and for whoever must end it before that one does: a
/// communicator of NCCL does not come to its end as long as there are graphs with its collectives.
class StepLauncher {
 public:
  explicit StepLauncher(Device device) : device_(device) {}
  StepLauncher(const StepLauncher&) = delete;
  StepLauncher& operator=(const StepLauncher&) = delete;
  ~StepLauncher() { end({}); }

  /// Takes over what DeviceRuntime::end_capture gave.
  void set(void* graph);
  /// Queues the work of the graph. @throws Unsupported if it has ended.
  void launch(StreamRef stream) const;
  /// Destroys the graph; launches already queued still run. From any thread. Only the first call
  /// counts. @param why for whoever would launch it
  void end(const std::string& why) noexcept;
  /// Why there is no graph any more; empty if there is.
  std::string why_it_ended() const;

 private:
  const Device device_;
  mutable std::mutex mutex_;
  void* graph_ = nullptr;
  bool has_ended_ = false;
  std::string why_;
};

}  // namespace lockstep
