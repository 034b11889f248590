#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/host/deadline.hpp"
#include "comm/operation.hpp"
#include "comm/split.hpp"
#include "lockstep/comm/memory.hpp"

/// @file
/// The seam below HostBackend: what moves the data of operations on host memory. Messages between
/// pairs of ranks are one way (MessageExecutor), memory that all ranks map is another.

namespace lockstep::comm::host {

/// A run that did not end in time; `missing` are the ranks it waited for.
struct TransferTimeout {
  std::vector<int> missing;
  bool may_wait_themselves = false;  ///< for ranks that this one has nothing from in any case
};

/// A rank that hung up in the middle of a run: it left the group, or was lost.
struct PeerGone {
  int peer;
  bool is_seen_by_few = false;  ///< others wait for it through the ranks that see it
  std::string how = "closed its connection";
};

/// A message that has come, and that no receive took.
struct Unreceived {
  int peer;          ///< who sent it
  std::string what;  ///< "send to rank 0 #3 of 5 f32": the number is that of collectives before it
};

/// Carries out the operations of one group. HostBackend gives it threads, the order of the
/// operations, their deadlines, and what becomes of failures. One thread at a time runs, though not
/// always the same; `abort` may come from any.
class Executor {
 public:
  virtual ~Executor() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Name of the backend: see Communicator::backend.
  virtual std::string_view kind() const = 0;

  /// Runs operations that start as one to their end: sends and receives side by side, those of one
  /// pair in order, then the collectives in order. Compares what the ranks call where the group's
  /// options say so.
  /// @param deadline may come nearer meanwhile, so waiting looks at it again and again.
  /// @throws Mismatch, TransferTimeout, PeerGone, PeerFailure after an abort, or a library's error.
  virtual void run(std::span<const Operation> operations, const Deadline& deadline) = 0;

  /// Makes `run` throw a PeerFailure with this reason, here and at the other ranks.
  virtual void abort(const std::string& reason) noexcept = 0;

  /// After a run that failed, once the other ranks were told: stops what still uses the
  /// operations' memory, as far as that can be had.
  virtual void quiesce() {}

  /// For whoever waits for something else meanwhile. @throws PeerFailure after an abort
  virtual void check() {}

  /// After a PeerGone: true if every rank that waits for the one that is gone finds it by itself.
  virtual bool is_gone_peer_seen_by_all() const { return true; }

  /// After a Mismatch: true if every rank has found it by itself, in the same words.
  virtual bool is_mismatch_seen_by_all() const { return false; }

  /// Once all runs are through: of each rank the first message that nobody received, as far as
  /// messages are kept for a rank that is late.
  virtual std::vector<Unreceived> unreceived() { return {}; }

  /// See CommunicatorBackend::allocate.
  virtual IntrusivePtr<Memory> allocate(std::size_t /*bytes*/) { return nullptr; }

  /// See CommunicatorBackend::split.
  virtual std::unique_ptr<Executor> split(const SplitPlan& plan) = 0;
};

}  // namespace lockstep::comm::host
