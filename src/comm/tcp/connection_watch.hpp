#pragma once

#include <vector>

#include "comm/tcp/socket.hpp"

namespace lockstep::comm::tcp {

/// Tells which of many connections something has come on, at no cost for those that are idle.
class ConnectionWatch {
 public:
  /// @throws Error at the limit of open files
  ConnectionWatch();

  /// Can be read from where `take` has something to tell.
  int descriptor() const { return poller_.descriptor(); }
  /// Watches a connection, which leaves the watch as it is closed. @throws Error
  void add(const Socket& connection, int peer);
  /// The peers from which something has come, or whose end has: each once, until `watch_again`.
  std::vector<int> take();
  /// Tells of a peer anew, also of what has come before.
  void watch_again(const Socket& connection, int peer) noexcept;

 private:
  Socket poller_;
};

}  // namespace lockstep::comm::tcp
