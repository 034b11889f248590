#pragma once

#include <cstdlib>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

/// @file
/// Suites over all ops of a kind, held to one: LOCKSTEP_TEST_OP=softsign test_contract ...

namespace lockstep::testing {

/// The positions in a list of ops of those that a test runs: all, or the one that LOCKSTEP_TEST_OP
/// names. None is a failure.
template <class Line, std::size_t count>
std::vector<std::size_t> chosen(const Line (&lines)[count]) {
  const char* const only = std::getenv("LOCKSTEP_TEST_OP");
  std::vector<std::size_t> positions;
  for (std::size_t i = 0; i < count; ++i)
    if (!only || lines[i].name == std::string_view(only)) positions.push_back(i);
  EXPECT_FALSE(positions.empty()) << "no op is called " << only;
  return positions;
}

}  // namespace lockstep::testing
