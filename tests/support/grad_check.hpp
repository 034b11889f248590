#pragma once

#include <source_location>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/autograd/grad_check.hpp"
#include "lockstep/core/error.hpp"

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

/// Fails the running test unless `grad_grad_check` passes, or the op is the one that cannot be
/// differentiated twice, and says so.
inline void expect_second_gradients(const GradCheckFunction& function, std::vector<Tensor> inputs,
                                    GradCheckOptions options = {},
                                    std::source_location where = std::source_location::current()) {
  const ::testing::ScopedTrace trace(where.file_name(), static_cast<int>(where.line()), "here");
  try {
    const GradCheckResult result = grad_grad_check(function, std::move(inputs), options);
    EXPECT_TRUE(result) << result.mismatch;
  } catch (const Unsupported& refusal) {
    const std::string_view message = refusal.what();
    EXPECT_NE(message.find("the gradient of linear_cross_entropy cannot"), std::string_view::npos)
        << message;
  }
}

}  // namespace lockstep::testing
