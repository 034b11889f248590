#pragma once

#include <functional>
#include <map>
#include <string>

#include "lockstep/comm/session.hpp"

namespace lockstep::testing {

/// Jobs of which one rank means something else by a call than the others, by mode.
std::map<std::string, std::function<int(Session&)>> disagreement_modes();

}  // namespace lockstep::testing
