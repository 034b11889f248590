#pragma once

#include <filesystem>
#include <vector>

/// @file
/// The text that examples train on unless told otherwise.

namespace examples {

/// Documentation and sources of lockstep itself, in a fixed order.
/// @throws lockstep::InvalidArgument if the source tree is no longer where it was built from.
std::vector<std::filesystem::path> project_text();

}  // namespace examples
