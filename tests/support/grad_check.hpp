#pragma once

#include <source_location>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/autograd/grad_check.hpp"

/// @file
/// Checks gradients against central differences.

namespace lockstep::testing {

/// Fails the running test unless `grad_check` passes.
inline void expect_gradients(const GradCheckFunction& function, std::vector<Tensor> inputs,
                             GradCheckOptions options = {},
                             std::source_location where = std::source_location::current()) {
  const ::testing::ScopedTrace trace(where.file_name(), static_cast<int>(where.line()), "here");
  const GradCheckResult result = grad_check(function, std::move(inputs), options);
  EXPECT_TRUE(result) << result.mismatch;
}

}  // namespace lockstep::testing
