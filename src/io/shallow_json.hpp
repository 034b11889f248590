#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

#include "lockstep/core/error.hpp"

/// @file
/// JSON of files that anyone may have written.

namespace lockstep::io {

/// Parses a text. Copying and printing JSON takes stack for each level, so levels are few.
/// @throws CorruptData for more; nlohmann::json::exception.
template <class Json>
Json parse_shallow_json(std::string_view text) {
  static constexpr int deepest = 16;
  return Json::parse(text, [](int depth, typename Json::parse_event_t, Json&) {
    LOCKSTEP_CHECK(depth <= deepest, CorruptData, "more than ", deepest, " levels of JSON");
    return true;
  });
}

}  // namespace lockstep::io
