#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/host/transport.hpp"
#include "comm/tcp/connection_watch.hpp"
#include "comm/tcp/mesh.hpp"
#include "comm/tcp/socket.hpp"

namespace lockstep::comm::tcp {

/// Messages over sockets to the other ranks, of which each is opened when it is first needed: for
/// jobs without MPI.
class TcpTransport final : public host::Transport {
 public:
  /// Every rank must call it.
  /// @param all_gather exchanges the listening endpoints.
  TcpTransport(const MeshPlan& plan, host::GatherBytes all_gather);

  int rank() const override { return plan_.rank; }
  int size() const override { return plan_.size; }
  std::string_view backend() const override { return "tcp"; }
  void transfer(std::span<const host::Outgoing> out, std::span<host::Incoming> in,
                const host::WaitOptions& options) override;
  void exchange(std::span<const host::Outgoing> out, std::span<host::Incoming> in,
                const host::WaitOptions& options, host::Arrived arrived) override;
  std::unique_ptr<host::Transport> split(int color, const std::vector<int>& members,
                                         host::GatherBytes all_gather) override;
  void abort(const std::string& reason) noexcept override;
  void check() override;
  std::map<int, std::vector<std::byte>> peek(std::size_t most) override;

 private:
  struct SendState;
  struct ReceiveState;
  struct Batch;

  void connect(const Batch& batch);
  void take_news();
  bool has_connection(int peer);
  void poll_once(Batch& batch);
  void look_at_others(const Batch* batch);
  bool may_still_abort(int peer);
  [[noreturn]] void throw_gone(int peer);
  bool pump_send(SendState& state);
  bool pump_receive(ReceiveState& state);
  void read_header(ReceiveState& state);
  std::size_t receive_some(int peer, std::byte* room, std::size_t size);
  [[noreturn]] void throw_abort(int peer, std::size_t length);
  void check_abort();
  Socket& socket(int peer) { return sockets_[static_cast<std::size_t>(peer)]; }

  MeshPlan plan_;
  std::vector<Socket> sockets_;  // by rank; none yet for those that nothing was sent to
  ConnectionWatch watch_;        // over all of them
  // Of ranks that sent what is not due yet: nothing else is seen of them before it is received.
  std::vector<char> is_unwatched_;
  std::vector<char> is_wanted_;
  std::map<int, std::string> gone_;  // ranks, and how
  std::string failure_;              // why a connection could not be made
  Socket wake_;
  std::mutex mutex_;  // guards what `abort` shares with a transfer
  std::vector<char> is_mid_message_;
  std::vector<char> is_amid_theirs_;  // a part of a message from this rank has been received
  bool aborted_ = false;
  std::string reason_;
  std::unique_ptr<Mesh> mesh_;
};

}  // namespace lockstep::comm::tcp
