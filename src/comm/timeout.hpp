#pragma once

#include <chrono>
#include <optional>

#include "lockstep/comm/communicator.hpp"

namespace lockstep::comm {

/// As long a wait as clocks can add up: what is longer, such as milliseconds::max(), is three
/// years.
std::chrono::milliseconds as_long_as_can_be(std::chrono::milliseconds wait);

/// The time that an environment variable gives in seconds; none if it is not set or empty.
/// @throws InvalidArgument unless it is positive.
std::optional<std::chrono::milliseconds> seconds_in_variable(const char* name);

/// The options with a timeout: the chosen one, else LOCKSTEP_TIMEOUT in seconds, else 10 minutes.
/// @throws InvalidArgument unless it is positive.
CommunicatorOptions with_timeout(CommunicatorOptions options);

}  // namespace lockstep::comm
