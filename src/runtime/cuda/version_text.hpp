#pragma once

#include <string>

/// @file
/// CUDA's version numbers as people write them.

namespace lockstep {

/// "13.0" for 13000.
inline std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace lockstep
