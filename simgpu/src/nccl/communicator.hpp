#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "nccl.h"
#include "nccl/call.hpp"
#include "nccl/registrations.hpp"
#include "nccl/rendezvous.hpp"

/// @file
/// A rank's side of a communicator.

namespace simgpu::nccl {

/// What a communicator is made with.
struct CommunicatorOptions {
  int ranks = 0;
  int rank = 0;
  int device = 0;
  bool is_blocking = true;
  std::string name;
};

/// A reduction that ncclRedOpCreatePreMulSum made.
struct ScaledSum {
  bool exists = false;
  ncclDataType_t type = ncclFloat32;
  std::uint64_t factor = 0;                  ///< in the bits of the type
  const std::byte* device_factor = nullptr;  ///< set: read when the collective runs
};

/// Shared by the program's handle and the operations that are still queued. Any thread may call it.
class Communicator {
 public:
  explicit Communicator(CommunicatorOptions options)
      : options_(std::move(options)), number_(++numbers_) {}
  ~Communicator();

  const CommunicatorOptions& options() const { return options_; }
  int rank() const { return options_.rank; }
  int size() const { return options_.ranks; }
  /// Among those of this process, in the order in which they were made.
  int number() const { return number_; }
  /// "communicator 'name' of 4 ranks".
  std::string describe() const;

  // --- life
  /// Does work in the background; until it is done the communicator is in progress. What it throws
  /// becomes the communicator's error.
  void start(std::function<void()> work);
  /// Waits for the work. @return its result
  ncclResult_t wait();
  /// Takes over what the work made; size and rank follow from it.
  void set_exchange(std::unique_ptr<CallExchange> exchange);
  CallExchange* exchange() const { return exchange_.get(); }
  /// For ncclCommGetAsyncError: the first error, or whether something is in progress.
  ncclResult_t state();
  /// Non-blocking: the call just made shows as in progress once. @return what the call returns
  ncclResult_t answer();
  /// @throws Failure if it failed, or has an earlier call in progress
  void require_ready();
  /// @throws Failure as `require_ready`, and if it was finalized
  void require_open();
  /// A collective was refused: one that does not block keeps the status as its error.
  void refuse_call(ncclResult_t status);
  void fail(ncclResult_t status, const std::string& message);
  /// Fails the communicator if a peer's process has ended before it left.
  void look_for_lost_peers();
  /// Ends what waits; nothing that is queued takes part any more.
  void abort();
  /// Waits until no graph holds a launch.
  void wait_for_graphs() const;
  bool is_aborted() const { return aborted_.load(std::memory_order_acquire); }
  bool has_failed() const { return error_.load() != ncclSuccess; }
  /// Waits until all launches have run and no graph holds one, or the communicator failed. Marks it
  /// as left.
  void finalize();
  /// Ends the background work and tells the others. Called once, by whoever takes the handle away.
  void leave();

  // --- launches, in order
  /// The place of a launch in the queue.
  std::uint64_t take_ticket() { return launched_.fetch_add(1); }
  /// True if a launch may begin: nothing else runs, and those before it are done.
  /// @param ticket null for a launch of a graph, which has no place of its own
  bool begin_launch(const std::uint64_t* ticket);
  /// The launch is done.
  void end_launch(bool had_ticket);
  /// A graph holds a launch from now on, or no longer.
  void count_captured(int launches) { held_by_graphs_ += launches; }
  /// Begins to make, in the background, the connections that the calls of a group need and that are
  /// not there; until the peers do the same the communicator is in progress.
  void connect(std::span<const Arguments> calls);
  /// How many setups of connections were begun.
  std::uint64_t setups() const { return setups_; }
  /// True once the first so many setups have ended well.
  bool has_connected(std::uint64_t setups) const {
    return setups_done_.load(std::memory_order_acquire) >= setups;
  }
  /// Polls for as long as the communicator is well. @return whether the condition holds
  bool wait_until(const std::function<bool()>& condition);
  /// A launch with collectives is captured: as where NCCL registers the buffers of captured
  /// collectives (NVLS), the ranks of a host meet on the host, in the background, for as long as it
  /// takes.
  void meet_for_capture();
  /// Executor only.
  Counters& counters() { return counters_; }

  /// The number of the next split.
  std::uint64_t next_management() { return management_++; }

  /// Buffers that the program has registered.
  Registrations& registrations() { return registrations_; }

  // --- reductions
  ncclRedOp_t add_scaled_sum(const ScaledSum& sum);
  /// @throws Failure if there is none
  void remove_scaled_sum(ncclRedOp_t op);
  /// @throws Failure if there is none
  ScaledSum scaled_sum(ncclRedOp_t op) const;

 private:
  static inline std::atomic<int> numbers_{0};

  CommunicatorOptions options_;
  const int number_;
  std::unique_ptr<CallExchange> exchange_;
  Counters counters_{0};
  std::thread work_;
  std::mutex work_mutex_;  // start, wait
  std::atomic<int> working_{0};
  std::atomic<bool> aborted_{false}, answered_{true}, finalized_{false};
  std::atomic<bool> running_{false};
  std::vector<unsigned> connected_;  // directions, by peer
  std::uint64_t setups_ = 0;
  std::atomic<std::uint64_t> setups_done_{0};
  std::atomic<int> held_by_graphs_{0};
  std::atomic<ncclResult_t> error_{ncclSuccess};
  std::atomic<std::uint64_t> launched_{0}, finished_{0}, management_{0};
  mutable std::mutex sums_mutex_;
  std::vector<ScaledSum> sums_;
  Registrations registrations_;
};

}  // namespace simgpu::nccl
