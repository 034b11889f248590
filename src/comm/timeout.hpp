#pragma once

#include "lockstep/comm/communicator.hpp"

namespace lockstep::comm {

/// The options with a timeout: the chosen one, else LOCKSTEP_TIMEOUT in seconds, else 10 minutes.
/// @throws InvalidArgument unless it is positive.
CommunicatorOptions with_timeout(CommunicatorOptions options);

}  // namespace lockstep::comm
