#pragma once

#include <string>
#include <string_view>

#include <gtest/gtest.h>

/// @file
/// What a process that runs one case of a suite can leave out. Every case is a process of its own
/// (ctest), and registering thousands of others takes longer than most cases.

namespace lockstep::testing {

/// The full name of the only case that runs, "Backends/GemmContract.Adds/cpu_f32", where
/// --gtest_filter has one; else empty. Once Google Test has read its flags.
inline std::string one_case() {
  std::string filter = GTEST_FLAG_GET(filter);
  return filter.find_first_of("*?:-") == std::string::npos ? filter : "";
}

/// True if a suite has to be instantiated with a value of this name, which is, or is part of, what
/// the names of its cases end with.
inline bool is_wanted(std::string_view value) {
  const std::string only = one_case();
  return only.empty() || only.find(value, only.rfind('/') + 1) != std::string::npos;
}

}  // namespace lockstep::testing
