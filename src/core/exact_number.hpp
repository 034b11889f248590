#pragma once

#include <charconv>
#include <string>

namespace lockstep::detail {

/// A number in the fewest digits that tell it from all others, for messages that are compared.
inline std::string exact(double number) {
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof digits, number).ptr};
}

}  // namespace lockstep::detail
