#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::comm {

/// A text of at most so many bytes; one that is longer ends with a whole word, and "...".
/// @param most more than 4
inline std::string shortened(std::string_view text, std::size_t most) {
  if (text.size() <= most) return std::string(text);
  const std::size_t room = most - 3;
  const std::size_t blank = text.substr(0, room).rfind(' ');
  return std::string(text.substr(0, blank == std::string_view::npos ? room : blank + 1)) + "...";
}

}  // namespace lockstep::comm
