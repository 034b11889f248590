#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/checkpoint/values.hpp"

/// @file
/// The file of a checkpoint that holds what is no tensor.

namespace lockstep::checkpoint {

/// Values of several states, by the states' names.
using NamedValues = std::map<std::string, Values, std::less<>>;

/// Values as JSON. Numbers that JSON lacks are written as texts: "NaN", "Infinity", "-Infinity".
std::string write_values(const NamedValues& values);
/// The reverse. @throws CorruptData.
NamedValues parse_values(std::string_view text, std::string_view source);

/// What a checkpoint's state file holds.
struct StateFile {
  std::int64_t step = 0;
  NamedValues shared;              ///< what all ranks have alike
  std::vector<NamedValues> ranks;  ///< what each has of its own
};

/// As JSON. @param ranks as `write_values` gives them.
std::string write_state_file(std::int64_t step, const NamedValues& shared,
                             std::span<const std::string> ranks);
/// The reverse. @throws CorruptData.
StateFile parse_state_file(std::string_view text, std::string_view source);

}  // namespace lockstep::checkpoint
