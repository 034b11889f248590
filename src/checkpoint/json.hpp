#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "lockstep/core/error.hpp"

/// @file
/// What JSON that anyone may have written is said to be.

namespace lockstep::checkpoint {

/// What is wrong with a text that does not parse, or lacks something, in words for people.
inline std::string describe(const nlohmann::json::exception& error, std::string_view text) {
  if (const auto* parsing = dynamic_cast<const nlohmann::json::parse_error*>(&error))
    return detail::concat("is no JSON from byte ", parsing->byte, " on, of ", text.size(),
                          ": it was cut short or damaged");
  const std::string_view what = error.what();
  return detail::concat("is not as it was written: ", what.substr(what.find("] ") + 2));
}

}  // namespace lockstep::checkpoint
