#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::comm {

/// A text of at most so many bytes; one that is longer ends with "...", behind a whole word if one
/// ends near, else behind a whole character of UTF-8.
/// @param most more than 4
inline std::string shortened(std::string_view text, std::size_t most) {
  constexpr std::size_t longest_word = 64, longest_character = 4;
  if (text.size() <= most) return std::string(text);
  const std::size_t room = most - 3;
  const std::size_t blank = text.substr(0, room).rfind(' ');
  std::size_t end = room;
  if (blank != std::string_view::npos && room - blank <= longest_word) {
    end = blank + 1;
  } else {
    const auto is_within_character = [&] {
      return (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80;
    };
    while (end > 0 && room - end < longest_character - 1 && is_within_character()) --end;
  }
  return std::string(text.substr(0, end)) + "...";
}

}  // namespace lockstep::comm
