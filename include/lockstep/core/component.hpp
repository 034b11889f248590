#pragma once

#include <string>

/// @file
/// What a build is made of.

namespace lockstep {

/// A library that this build uses, and the version found at run time.
struct Component {
  std::string name;
  std::string version;
};

}  // namespace lockstep
