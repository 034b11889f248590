#pragma once

#include <vector>

#include "lockstep/core/component.hpp"

/// @file
/// What reads and writes files in this build, for bug reports.

namespace lockstep::io {

/// The libraries behind file formats: zlib.
std::vector<Component> components();

}  // namespace lockstep::io
