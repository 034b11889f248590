#pragma once

#include "lockstep/comm/session.hpp"

namespace lockstep::testing {

/// Trains until a StopRequest says stop, and says after which step. What happens meanwhile is in
/// the environment, see stops.cpp.
int train_until_stopped(Session& session);

/// Says how long StopRequest::after takes while nobody asks.
int time_stop_request(Session& session);

}  // namespace lockstep::testing
