#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/host/deadline.hpp"
#include "comm/host/executor.hpp"
#include "lockstep/core/function_ref.hpp"

/// @file
/// The seam below host collectives: whole messages between pairs of ranks. MPI, sockets and threads
/// implement it; signatures, algorithms and arithmetic above it exist once.

namespace lockstep::comm::host {

/// A message to one peer.
struct Outgoing {
  int peer;
  std::span<const std::byte> data;
};

/// Room for a message from one peer.
struct Incoming {
  int peer;
  std::span<std::byte> room;
  std::size_t received = 0;  ///< set by `transfer`; at most the room
};

/// How long, and how, to wait for messages.
struct WaitOptions {
  const Deadline* deadline = nullptr;
  /// The peers are known to be in the same operation: poll without sleeping.
  bool busy_poll = false;
};

/// All-gather of bytes over the group that is being split.
using GatherBytes = FunctionRef<std::vector<std::string>(std::string_view)>;

/// Hears of a message that has come; see Transport::exchange.
using Arrived = FunctionRef<bool(Incoming&)>;

/// Messages between the ranks of one group, in order between each pair. One thread at a time
/// transfers, though not always the same; `abort` may come from any thread.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Name of the backend.
  virtual std::string_view backend() const = 0;

  /// Sends and receives all messages, concurrently, and returns when all are through. Messages of
  /// one pair match in the order given. A message longer than its room is an error.
  /// @throws TransferTimeout, PeerGone, PeerFailure after an abort, or the library's error.
  virtual void transfer(std::span<const Outgoing> out, std::span<Incoming> in,
                        const WaitOptions& options) = 0;

  /// As `transfer`, but each peer's messages go on as they come, whatever the others do. `in` names
  /// a peer once.
  /// @param arrived is told of each message; it returns true once it has set the room for the next
  /// one from that peer, false if there is none. What it throws ends the exchange.
  virtual void exchange(std::span<const Outgoing> out, std::span<Incoming> in,
                        const WaitOptions& options, Arrived arrived) = 0;

  /// Between transfers, for whoever waits for something else. @throws PeerFailure after an abort
  virtual void check() {}

  /// Between transfers: of each rank the first message that has come, as far as messages come
  /// before somebody receives them. They stay.
  /// @param most bytes of each. @return by rank; none of others.
  virtual std::map<int, std::vector<std::byte>> peek(std::size_t /*most*/) { return {}; }

  /// After a transfer that failed, and once the peers were told: cancels its messages, or gives
  /// them a moment to end.
  /// @return true if nothing reads or writes their memory any more.
  virtual bool quiesce() { return true; }

  /// Makes a transport for the `members` of this group (ranks here, in the new order), or null if
  /// `members` is empty. Every rank of this group calls it.
  virtual std::unique_ptr<Transport> split(int color, const std::vector<int>& members,
                                           GatherBytes all_gather) = 0;

  /// Makes transfers fail, here and at the peers, with this reason.
  virtual void abort(const std::string& reason) noexcept = 0;
};

}  // namespace lockstep::comm::host
