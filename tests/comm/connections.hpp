#pragma once

#include <chrono>
#include <thread>

#include "comm/tcp/socket.hpp"

/// @file
/// What tests of connections wait for, and how long.

namespace lockstep::comm::tcp {

inline Deadline in(int milliseconds) {
  return Clock::now() + std::chrono::milliseconds(milliseconds);
}

/// For what takes no time to speak of, unless the machine is busy.
inline Deadline soon() { return in(30'000); }

/// Tries until it holds, or for too long.
template <class Condition>
bool comes_true(Condition condition) {
  const Deadline deadline = soon();
  while (!condition()) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

inline Socket connected_to(const Socket& listener) {
  return connect_to(local_endpoint(listener), soon());
}

}  // namespace lockstep::comm::tcp
