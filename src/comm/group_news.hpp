#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// @file
/// News of groups as words: "left KEY RANK COLLECTIVES", "failed KEY REASON",
/// "awaits KEY RANK PEER IS_SENT NUMBER PLACE CALL", "asks KEY COLLECTIVE RANKS" (of the job), and
/// "answers KEY RANKS COLLECTIVE IS_BEHIND DOING" (of the group).

namespace lockstep::comm::news {

inline constexpr std::string_view left = "left", failed = "failed", asks = "asks",
                                  answers = "answers", awaits = "awaits";
/// Between news that travel together.
inline constexpr char separator = '\0';
/// What travels together has at most so many bytes.
inline constexpr std::size_t max_bytes = 8000;

/// Takes the first word away.
inline std::string_view next_word(std::string_view& text) {
  const std::size_t end = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

template <class T>
T number(std::string_view word) {
  T value{};
  std::from_chars(word.data(), word.data() + word.size(), value);
  return value;
}

/// Ranks as "0-62:2,63": those from 0 to 62 in steps of 2, and 63. Takes from the front of `ranks`,
/// which ascend, what has room in so many bytes.
std::string take_rank_list(std::span<const int>& ranks, std::size_t most_bytes);
/// Those of 0 to size - 1 that are in such a list.
std::vector<int> ranks_in(std::string_view list, int size);

}  // namespace lockstep::comm::news
