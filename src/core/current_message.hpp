#pragma once

#include <exception>
#include <string>

namespace lockstep {

/// What the exception says that is being handled.
inline std::string current_message() {
  try {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an unknown exception";
  }
}

}  // namespace lockstep
