#pragma once

#include <sstream>
#include <string>

#include "lockstep/autograd/ops/spatial.hpp"

/// @file
/// Helpers of the layers' `describe`.

namespace lockstep::nn {

/// Streams all parts into one string.
template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

/// "3" or "3x5".
inline std::string text_of(Size2d size) {
  return size.height == size.width ? text(size.height) : text(size.height, 'x', size.width);
}

}  // namespace lockstep::nn
