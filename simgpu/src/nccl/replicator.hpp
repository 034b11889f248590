#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "nccl/segment.hpp"
#include "nccl/socket.hpp"

/// @file
/// Messages between hosts: a thread that copies them to and from the ranks that share no memory.

namespace simgpu::nccl {

/// Sends this rank's slots to remote ranks, and keeps copies of theirs. Readers see no difference.
class Replicator {
 public:
  struct Remote {
    int rank;
    Descriptor socket;
    Segment* replica;  ///< filled by the replicator's thread
  };

  /// @param ranks of the whole communicator
  /// @param own must outlive the replicator, as the replicas must
  Replicator(int ranks, Segment& own, std::vector<Remote> remotes);
  /// Sends what is still queued, for some seconds at most.
  ~Replicator();

  /// Queues a call for those remote ranks that read its channel.
  void send_call(Channel channel, std::uint64_t number, const CallSlot& slot);
  /// Tells a remote rank that its call is read. Other ranks are ignored.
  void send_release(int to, Channel channel, std::uint64_t number);
  void send_presence(Presence presence);

  /// True for a remote rank.
  bool reaches(int rank) const;
  /// True if the connection to a remote rank is gone.
  bool is_broken(int rank) const;

 private:
  enum class Kind : std::uint32_t { call, release, presence };
  struct Frame {
    Kind kind;
    Channel channel;
    std::uint64_t number;
    std::uint64_t bytes;
    Signature signature;
  };
  struct Connection {
    Remote remote;
    std::deque<std::vector<std::byte>> output;  // guarded by mutex_
    std::size_t sent = 0;                       // of output.front()
    Frame frame{};                              // that is coming in
    std::size_t frame_received = 0, data_received = 0;
    std::uint64_t data_offset = 0;
    std::atomic<bool> is_broken{false};
  };

  void queue(Connection& connection, const Frame& frame, const std::byte* data);
  void run();
  void flush(Connection& connection);
  void receive(Connection& connection);
  bool receive_into(Connection& connection, void* room, std::size_t bytes, std::size_t& received);
  void begin_frame(Connection& connection);
  void end_frame(Connection& connection);
  bool has_output();

  const int ranks_;
  Segment& own_;
  std::deque<Connection> connections_;
  std::mutex mutex_;
  Descriptor wake_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace simgpu::nccl
