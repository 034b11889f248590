#pragma once

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <ostream>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

/// @file
/// The ways in which a rank means something else than the others, and what is said of each.

namespace lockstep::testing {

/// What rank 1 does, and what is said of it.
struct Disagreement {
  const char *mode, *rank_1, *others;
};
inline std::ostream& operator<<(std::ostream& out, const Disagreement& each) {
  return out << each.mode;
}

inline constexpr const char* on_all_reduce = " called all_reduce #0 of 1000 f32 (sum) 'bucket 3'";

inline constexpr Disagreement disagreements[]{
    {"other-count", "rank 1 called all_reduce #0 of 1001 f32 (sum)", on_all_reduce},
    {"other-dtype", "rank 1 called all_reduce #0 of 1000 i32 (sum)", on_all_reduce},
    {"other-op", "rank 1 called all_reduce #0 of 1000 f32 (max)", on_all_reduce},
    {"other-collective", "rank 1 called barrier #0", on_all_reduce},
    {"other-label", "rank 1 called all_reduce #0 of 1000 f32 (sum) 'bucket 4'", on_all_reduce},
    {"other-order", "rank 1 called all_reduce #0 of 700 f32 (sum)",
     " called all_reduce #0 of 300 f32 (sum)"},
    {"missing-call", "rank 1 called broadcast #4 of 10 f32",
     " called all_reduce #4 of 1000 f32 (sum)"},
    {"other-shape", "on rank 1",
     "parameter 0 is \"weight f32 [2, 3]\" on rank 0 and \"weight f32 [3, 2]\""},
    {"other-parameter-dtype", "on rank 1",
     "parameter 0 is \"weight f32 [2, 3]\" on rank 0 and \"weight f64 [2, 3]\""},
    {"other-plan", "4 on rank 1", "bucket_bytes is 1048576 on rank 0"},
    {"flipped-bit", "rank 1 of world has other values than the others in 1 of 2 tensors",
     "replicas differ after step 4"},
};

/// Some of them.
inline std::vector<Disagreement> disagreements_of(std::initializer_list<std::string_view> modes) {
  std::vector<Disagreement> some;
  std::ranges::copy_if(disagreements, std::back_inserter(some), [&](const Disagreement& each) {
    return std::ranges::find(modes, std::string_view(each.mode)) != modes.end();
  });
  return some;
}

// What ranks did last may quote the error: it is told where a line begins with it.
inline int lines_of_errors(const std::string& output) {
  static const std::regex error(R"((\[rank \d+\] )?error: .*)");
  std::istringstream lines(output);
  int count = 0;
  for (std::string line; std::getline(lines, line);) count += std::regex_match(line, error);
  return count;
}

}  // namespace lockstep::testing
