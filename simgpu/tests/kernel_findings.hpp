#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "findings.hpp"

/// @file
/// What tests of findings in kernels expect.

namespace simgpu::test {

/// Expects exactly one finding, of this kind, whose text holds all of `parts`.
inline void expect_finding(const testing::Findings& findings, Finding finding,
                           const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_TRUE(findings.only(finding, part)) << "no '" << part << "' in: " << findings.text();
}

}  // namespace simgpu::test
