#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "nccl/replicator.hpp"
#include "nccl/segment.hpp"
#include "nccl/socket.hpp"

/// @file
/// Where the ranks of a communicator show each other what they call.

namespace simgpu::nccl {

/// Another rank as this one reaches it.
struct Peer {
  Segment segment;       ///< its slots: shared memory, or a copy that the replicator keeps
  Descriptor process;    ///< a pidfd; empty for ranks of this process and of other hosts
  Descriptor socket;     ///< for ranks of other hosts; taken over by the replicator
  bool is_self = false;  ///< the segment is this rank's own
};

/// The view of one rank. Any thread may publish; each channel is for one thread at a time.
class CallExchange {
 public:
  /// A call of another rank.
  struct Seen {
    const Signature* signature = nullptr;
    const std::byte* data = nullptr;
    std::size_t bytes = 0;
  };

  /// @param peers by rank; the entry of this rank itself is left empty but for `is_self`.
  CallExchange(int rank, Segment own, std::vector<Peer> peers);
  ~CallExchange();

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }

  /// Shows a call and a copy of its data to those who read the channel. False if the place is
  /// still in use: try again later. @throws Failure
  bool publish(Channel channel, std::uint64_t number, const Signature& signature,
               std::span<const std::byte> data);
  /// True once all readers of an own call are done with it.
  bool is_taken(Channel channel, std::uint64_t number) const;
  /// A call of another rank, if it has come.
  std::optional<Seen> find(int from, Channel channel, std::uint64_t number) const;
  /// This rank does not need it any more.
  void release(int from, Channel channel, std::uint64_t number);

  /// Tells the others.
  void announce(Presence presence);
  Presence presence_of(int rank) const;
  /// Tells the others that this rank has captured one launch more. @return how many it has
  std::uint64_t announce_capture() { return ++own_.captured(); }
  /// True once all ranks of this host have captured so many.
  bool is_captured_by_neighbours(std::uint64_t launches) const;
  /// A rank whose process ended, or whose connection broke, before it left; -1 without. Looks at
  /// most every few milliseconds.
  int lost_rank();
  /// Waits until all ranks announced that they are ready. @param give_up asked in between
  /// @throws Failure if a rank is lost
  void wait_until_ready(const std::function<bool()>& give_up);

 private:
  const Segment& segment_of(int rank) const;
  std::uint32_t readers_of(Channel channel) const;
  bool has_ended(int rank) const;

  const int rank_;
  Segment own_;
  std::vector<Peer> peers_;
  std::unique_ptr<Replicator> replicator_;  // if there are remote ranks
  std::mutex publish_mutex_;
  std::atomic<std::int64_t> next_look_{0};
  std::atomic<int> lost_{-1};
};

}  // namespace simgpu::nccl
