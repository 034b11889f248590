#pragma once

#include <cstdlib>
#include <optional>
#include <string_view>

#include "lockstep/core/error.hpp"

/// @file
/// Environment variables that turn something on or off.

namespace lockstep {

/// What a variable says: 0 or 1; nothing where it is not set, or empty. @throws InvalidArgument
inline std::optional<bool> environment_switch(const char* name) {
  const char* const variable = std::getenv(name);
  if (!variable || !*variable) return std::nullopt;
  const std::string_view value = variable;
  LOCKSTEP_CHECK(value == "0" || value == "1", InvalidArgument, name, " is \"", value,
                 "\"; give 0 or 1");
  return value == "1";
}

}  // namespace lockstep
