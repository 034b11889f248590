#pragma once

#include <span>

/// @file
/// What a message takes: a latency and its bytes by a bandwidth.

namespace lockstep::parallel {

/// Cost of one collective, by the bytes that it reduces.
struct MessageCost {
  double latency = 0;           ///< seconds of one of no bytes
  double seconds_per_byte = 0;  ///< one over the bandwidth

  /// Seconds of a collective.
  double seconds(double bytes) const { return latency + bytes * seconds_per_byte; }
};

/// What one collective took.
struct MessageTime {
  double bytes = 0;
  double seconds = 0;
};

/// The cost from which the times differ least: least squares of the relative differences, neither
/// part negative. Where all have one size, it is all bandwidth.
MessageCost fit_message_cost(std::span<const MessageTime> times);

}  // namespace lockstep::parallel
