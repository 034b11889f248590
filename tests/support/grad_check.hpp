#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <source_location>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/tensor/factories.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// Checks gradients against central differences.

namespace lockstep::testing {

/// The function to check: from inputs to one f64 output of any shape. It must give the same result
/// for the same inputs, so one that draws random numbers seeds them itself.
using GradCheckFunction = std::function<Tensor(const std::vector<Tensor>&)>;

/// Options of `expect_gradients`.
struct GradCheckOptions {
  double step = 1e-5;       ///< distance to either side
  double tolerance = 1e-6;  ///< of the largest gradient of an input
};

namespace detail {

/// Irregular weights of the outputs: gradients that are permuted, or summed, do not pass.
inline Tensor output_weights(const Shape& shape) {
  Tensor weights = empty(shape, {.dtype = DType::f64});
  double i = 0;
  for (double& weight : weights.flat<double>()) weight = 0.3 + std::cos(1.7 * i++ + 0.4);
  return weights;
}

/// Changes one element of a contiguous tensor.
inline void set_element(const Tensor& tensor, std::size_t index, double value) {
  const auto at = static_cast<std::int64_t>(index);
  tensor.detach().reshape({-1}).slice(0, at, at + 1).fill_(value);
}

inline double weighted_sum(const Tensor& output, const Tensor& weights) {
  const std::vector<double> values = output.to_vector<double>();
  double sum = 0, lost = 0;  // compensated: its rounding would limit the differences
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double term = values[i] * weights.flat<double>()[i] - lost, next = sum + term;
    lost = (next - sum) - term;
    sum = next;
  }
  return sum;
}

}  // namespace detail

/// Fails the running test unless backward agrees with central differences for every element of
/// every f64 input. The inputs are changed and restored in place, so parameters of a module may be
/// among them; those that are not f64 (an index) pass through.
/// @param inputs contiguous, on any device; f64 ones are made to require a gradient.
inline void expect_gradients(const GradCheckFunction& function, std::vector<Tensor> inputs,
                             GradCheckOptions options = {},
                             std::source_location where = std::source_location::current()) {
  const ::testing::ScopedTrace trace(where.file_name(), static_cast<int>(where.line()), "here");
  for (Tensor& input : inputs)
    if (input.dtype() == DType::f64) input.set_requires_grad().set_grad({});
  const Tensor output = function(inputs);
  const Tensor weights = detail::output_weights(output.shape());
  output.backward(weights.to(output.device()));

  const NoGradGuard no_recording;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].dtype() != DType::f64) continue;
    const Tensor gradient = inputs[i].grad();
    ASSERT_TRUE(gradient.defined()) << "input " << i << " got no gradient";
    const std::vector<double> actual = gradient.to_vector<double>();
    const std::vector<double> values = inputs[i].to_vector<double>();
    std::vector<double> expected;
    for (std::size_t j = 0; j < values.size(); ++j) {
      detail::set_element(inputs[i], j, values[j] + options.step);
      const double above = detail::weighted_sum(function(inputs), weights);
      detail::set_element(inputs[i], j, values[j] - options.step);
      const double below = detail::weighted_sum(function(inputs), weights);
      detail::set_element(inputs[i], j, values[j]);
      expected.push_back((above - below) / (2 * options.step));
    }
    double largest = 1e-2;  // where the true gradient is 0, differences still round
    for (const double value : expected) largest = std::max(largest, std::abs(value));
    for (std::size_t j = 0; j < expected.size(); ++j)
      ASSERT_NEAR(actual[j], expected[j], options.tolerance * largest)
          << "input " << i << ", element " << j;
  }
}

}  // namespace lockstep::testing
