#pragma once

#include <string>
#include <string_view>

/// @file
/// Text from a file, made fit for an error message.

namespace lockstep::io {

/// The text in quotes, control characters replaced and long texts cut.
inline std::string in_quotes(std::string_view text) {
  constexpr std::size_t longest = 80;
  std::string result = "'";
  for (const char c : text.substr(0, longest))
    result += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? '?' : c;
  return result + (text.size() > longest ? "...'" : "'");
}

}  // namespace lockstep::io
