#pragma once

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "support/device_array.hpp"

namespace lockstep::test {

/// Error of one rounding to the dtype, relative.
inline double rounding(DType dtype) {
  switch (dtype) {
    case DType::f64: return 0x1p-53;
    case DType::f32: return 0x1p-24;
    case DType::bf16: return 0x1p-8;
    default: return 0x1p-11;
  }
}

/// Passes if no element is off by more than `tolerance` times the largest expected magnitude.
inline ::testing::AssertionResult close(const Values& actual, const Values& expected,
                                        double tolerance) {
  if (actual.size() != expected.size())
    return ::testing::AssertionFailure() << actual.size() << " values, not " << expected.size();
  double largest = 1e-30;
  for (const double value : expected)
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (actual[i] == expected[i] || (std::isnan(actual[i]) && std::isnan(expected[i]))) continue;
    if (!(std::abs(actual[i] - expected[i]) <= tolerance * largest))
      return ::testing::AssertionFailure()
             << "element " << i << " is " << actual[i] << ", expected " << expected[i]
             << " (allowed " << tolerance * largest << ")";
  }
  return ::testing::AssertionSuccess();
}

}  // namespace lockstep::test
