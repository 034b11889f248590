#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/tensor/factories.hpp"

/// @file
/// What the tests of tensors on groups of ranks share.

namespace lockstep::parallel::testing {

/// Where the calling rank's tensors live; the world that runs the tests sets it.
inline thread_local Device device_of_rank = cpu;

inline CommunicatorPtr share(Communicator& group) { return CommunicatorPtr(&group); }

/// Irregular f64 values that depend on a seed alone, on the rank's device.
inline Tensor values(const Shape& shape, int seed) {
  Tensor x = empty(shape, {.dtype = DType::f64});
  double i = 0;
  for (double& value : x.flat<double>()) value = std::sin(1.3 * i++ + 0.7 * seed + 0.2);
  return x.to(device_of_rank);
}

/// The same, as a leaf.
inline Tensor leaf(const Shape& shape, int seed) { return values(shape, seed).set_requires_grad(); }

inline void expect_close(const Tensor& actual, const Tensor& expected) {
  ASSERT_TRUE(actual.defined());
  ASSERT_EQ(actual.shape(), expected.shape());
  const auto a = actual.to_vector<double>(), b = expected.to_vector<double>();
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-12) << "element " << i;
}

/// The message of the error that `action` throws; fails if there is none.
template <class Expected>
std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Expected& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error was thrown";
  return {};
}

}  // namespace lockstep::parallel::testing
