#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/operation.hpp"
#include "nccl/call.hpp"
#include "nccl/communicator.hpp"

/// @file
/// The calls of one group on one communicator, as one operation of a stream.

namespace simgpu::nccl {

/// State of the operation; a launch of a graph that holds it begins it anew. Calls of a group
/// proceed together, as in the one kernel that NCCL makes of them; several messages between two
/// ranks in rounds, of which each begins when the one before has ended (ncclAddWorkBatchToPlan from
/// 2.23 on takes no connection twice into one batch of work).
class Launch {
 public:
  /// @param is_captured the operation becomes a node of a graph, and takes its place among the
  /// communicator's launches each time it begins
  Launch(std::shared_ptr<Communicator> communicator, std::vector<Arguments> calls, CallSite site,
         bool is_captured);
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;
  ~Launch();

  /// As a report shows it: "ncclAllReduce", "ncclGroupEnd (ncclSend, ncclRecv)".
  std::string name() const;
  /// What all calls read and write.
  std::vector<Access> accesses() const;
  profile::Fields profile() const;

  /// One poll; true when done, or when the communicator was aborted.
  bool run();

 private:
  using Clock = std::chrono::steady_clock;
  void hold_registered();
  bool is_done(Call& call);
  const Call& held_up() const;
  bool advance_round();
  void begin();
  void check_memory();
  void end();
  void look_at_mismatch(const Call& call);
  void warn_if_long();

  std::shared_ptr<Communicator> communicator_;
  std::vector<Arguments> arguments_;
  CallSite site_;
  std::optional<std::uint64_t> ticket_;
  std::uint64_t setups_;  // of connections, that it needs
  bool hangs_ = false;    // by fault injection

  struct Step {
    Call call;
    std::size_t round;
  };
  std::list<Step> calls_;                  // under way; those that are done are taken out
  std::vector<RegisteredUse> registered_;  // what it uses until it has ended
  bool is_running_ = false, overruns_ = false, has_warned_ = false, has_reported_ = false;
  std::optional<Clock::time_point> asked_, mismatched_;
};

/// Queues calls of one group on one communicator. @param streams those named by the calls; all are
/// made to wait for each other. @throws Failure
void launch(const std::shared_ptr<Communicator>& communicator, std::vector<Arguments> calls,
            const std::vector<cudaStream_t>& streams, const CallSite& site);

}  // namespace simgpu::nccl
