#pragma once

#include <functional>
#include <map>
#include <string>

#include "lockstep/comm/session.hpp"

/// @file
/// Jobs that train a model on all ranks.

namespace lockstep::testing {

/// By what the program's first argument says; `culprit` is the rank that does otherwise.
std::map<std::string, std::function<int(Session&, int culprit)>> training_modes();

}  // namespace lockstep::testing
