#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/comm/buffer.hpp"
#include "lockstep/comm/errors.hpp"
#include "lockstep/comm/reduce_op.hpp"
#include "lockstep/comm/work.hpp"
#include "lockstep/core/device.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/core/intrusive_ptr.hpp"

/// @file
/// A group of ranks and the collectives over it.

namespace lockstep::comm {

/// Which of its owner's collectives one is. Sequence numbers cannot tell that a rank has left out a
/// step: its next collective would pair with the last one of the others.
struct CollectiveId {
  std::uint64_t owner = 0;  ///< what makes the collective, such as a reducer; 0: nothing to compare
  std::uint64_t step = 0;   ///< which step of the owner's
  std::uint64_t part = 0;   ///< which part of that step, such as a bucket
  friend bool operator==(const CollectiveId&, const CollectiveId&) = default;
};

/// Options of one collective.
struct CollectiveOptions {
  /// What the data is, such as a bucket's name and its parameters: part of every error, and
  /// compared between the ranks where both give one.
  std::string_view label = {};
  /// Compared between the ranks: equal on all, or a Mismatch on all.
  CollectiveId id = {};
  /// In a step that is captured (StepGraph): gives the label and id that each launch has.
  std::function<void(std::string& label, CollectiveId& id)> renew = nullptr;
  /// Overrides the communicator's timeout for this operation.
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
};

/// Options of a communicator; its sub-groups inherit them.
struct CommunicatorOptions {
  /// An operation that has not ended after this long fails with Timeout. Default: LOCKSTEP_TIMEOUT
  /// in seconds, else 10 minutes; must be positive.
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
  /// How long the communicator's destruction waits for operations that are still under way, on a
  /// GPU for each from when the device comes to it, before it aborts the group.
  std::chrono::milliseconds leave_timeout = std::chrono::seconds(10);
  /// Compare op, dtype, count, order, label and id of every collective between the ranks: on the
  /// CPU before it runs, so that all throw Mismatch. Over NCCL meanwhile, and up to some 100 ms
  /// later: then the whole job ends, whatever group it was, as what was computed since is void.
  bool check_signatures = true;
  /// The backend: "nccl", or one of the host, through which data of GPUs are staged: "shm", "hier",
  /// "mpi", "self", "tcp"; empty: the first that serves the job, however the ranks met.
  std::string backend = {};
};

class Batch;
class CommunicatorBackend;
struct Operation;

/// A group of ranks. Every operation returns at once and runs in the background, in the order of
/// the calls; all ranks of the group must make the same calls in the same order, from one thread at
/// a time. On a GPU an operation begins after what the calling thread's current stream holds.
///
/// After a failure the communicator is unusable: the operations under way and all later ones fail
/// with the first error.
class Communicator final : public RefCounted {
 public:
  /// For backends; programs get theirs from a Session, `make_communicator` or `split`.
  explicit Communicator(std::unique_ptr<CommunicatorBackend> backend);
  ~Communicator() override;

  /// This process' number within the group, 0 to size() - 1.
  int rank() const { return rank_; }
  /// Number of ranks.
  int size() const { return size_; }
  /// Where buffers must live.
  Device device() const;
  /// "nccl", "shm", "hier", "mpi", "tcp", "thread" or "self"; "mpi, staged" and so on for GPUs.
  std::string_view backend() const;
  /// Name in messages: "world", "world/0.1" for a part of it. Ranks that a message names beside it
  /// are the group's own numbers.
  const std::string& name() const;

  /// Replaces each rank's elements by the reduction over all ranks; the same bits on every rank.
  /// @param buffer as many elements of the same dtype on every rank; any dtype but bool.
  Work all_reduce(Buffer buffer, ReduceOp reduction = ReduceOp::sum(),
                  const CollectiveOptions& options = {});

  /// Reduces over ranks and leaves on each rank its own part of the result.
  /// @param input all parts, in rank order, on every rank.
  /// @param output this rank's part; may lie in its place inside `input`, else apart from it.
  /// @param counts elements of each rank's part; empty: `output.count` everywhere.
  Work reduce_scatter(ConstBuffer input, Buffer output, ReduceOp reduction = ReduceOp::sum(),
                      std::span<const std::int64_t> counts = {},
                      const CollectiveOptions& options = {});

  /// Collects every rank's part on every rank.
  /// @param input this rank's part; may lie in its place inside `output`, else apart from it.
  /// @param output all parts, in rank order.
  /// @param counts elements of each rank's part; empty: `input.count` everywhere.
  Work all_gather(ConstBuffer input, Buffer output, std::span<const std::int64_t> counts = {},
                  const CollectiveOptions& options = {});

  /// Copies root's elements to every rank.
  Work broadcast(Buffer buffer, int root = 0, const CollectiveOptions& options = {});

  /// Sends part r of `input` to rank r and puts what rank r sent in part r of `output`; parts are
  /// `count / size()` elements each. The two must not overlap.
  Work all_to_all(ConstBuffer input, Buffer output, const CollectiveOptions& options = {});

  /// Sends elements to another rank, which must call `receive` at the same place of its sequence.
  /// Without a `batch` around it, what this rank calls next may wait until that one receives. Over
  /// NCCL the first message between two ranks connects them: the call returns once both have come
  /// to it.
  Work send(ConstBuffer buffer, int to, const CollectiveOptions& options = {});
  /// Receives what another rank sends; dtype and count must be those sent.
  Work receive(Buffer buffer, int from, const CollectiveOptions& options = {});

  /// Completes once every rank has called it. For the host to wait for all ranks, on a GPU too:
  /// `barrier().synchronize()`.
  Work barrier(const CollectiveOptions& options = {});

  /// Starts the operations that `body` calls on this communicator as one, when `body` returns.
  /// Sends and receives of a batch go on side by side, so that two ranks may both send first; those
  /// between one pair of ranks match in the order of the calls. Collectives follow them, in the
  /// order of the calls. A batch within a batch is part of it. If `body` throws, nothing starts.
  ///
  /// Over NCCL a batch first connects, in ascending order, the ranks with which this one has
  /// exchanged no message so far. Where one of them waits in a call outside of a batch for what a
  /// later one gets here, they wait for each other until the timeout: an `all_to_all` before, which
  /// all ranks call, connects all. Several messages between two ranks go in rounds there: the
  /// second each way begins once the first ones of the batch have ended, so the other rank must
  /// not wait for its second from here before it has sent its first.
  ///
  ///     communicator.batch([&] {
  ///       communicator.send(activations, next);
  ///       communicator.receive(gradients, next);
  ///     }).wait();
  ///
  /// @param body its operations must not use each other's results.
  /// @return all of them; the Work of each call in `body` stands for all of them too, and may be
  /// waited for from here on.
  Work batch(FunctionRef<void()> body);

  /// Forms groups of the ranks that give the same colour, ordered by key, then by rank. Blocks;
  /// every rank must call it.
  /// @param color group, or negative to be in none (then the result is null).
  IntrusivePtr<Communicator> split(int color, int key);

  /// A number for what the ranks make of the group alike, such as a recorded op: 1, 2 and so on.
  /// Told in labels, it shows that a rank has made more or fewer, or another.
  std::uint64_t take_number() noexcept { return ++numbers_; }

  /// Fails what is under way, here and on the other ranks, with `reason`. May be called from any
  /// thread. Over NCCL the others hear of it from the job's Session; without one they run into
  /// their timeout. @param reason the first error, as every rank shall report it.
  void abort(const std::string& reason) noexcept;

  /// A line on what this rank is doing, for watchdogs, and one for each of its last operations, the
  /// latest first: at most five that have ended. May be called from any thread.
  std::string describe_progress() const;

  /// The backend's implementation; for those who build one backend on another.
  CommunicatorBackend& implementation() const { return *backend_; }

 private:
  Work start(Operation operation, const CollectiveOptions& options);

  const std::unique_ptr<CommunicatorBackend> backend_;
  const int rank_, size_;
  Batch* batch_ = nullptr;  // that is being put together
  std::uint64_t splits_ = 0, numbers_ = 0;
};

/// Owning handle.
using CommunicatorPtr = IntrusivePtr<Communicator>;

}  // namespace lockstep::comm

namespace lockstep {
using comm::Communicator;
using comm::CommunicatorPtr;
}  // namespace lockstep
