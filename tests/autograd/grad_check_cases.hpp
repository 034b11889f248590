#pragma once

#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "lockstep/autograd/grad.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/memory/allocator.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/grad_check.hpp"
#include "support/place.hpp"

/// @file
/// Inputs and cases of the gradient checks.

namespace lockstep::test {

using Tensors = std::vector<Tensor>;

/// One op with the inputs to check it at.
struct GradCase {
  std::string name;
  GradCheckFunction op;
  /// Makes the inputs; called inside the test, never while tests are registered.
  std::function<Tensors()> inputs;
};

inline std::ostream& operator<<(std::ostream& out, const GradCase& each) {
  return out << each.name;
}

/// Uniform over [low, high), f64. Every call gives other values.
inline Tensor uniform(const Shape& shape, double low = -2.0, double high = 2.0) {
  return affine(rand(shape, {.dtype = DType::f64}), high - low, low);
}

/// The numbers 0, 1/n, ... in an order of no pattern, f64: no two are closer than 1/n, so that
/// maxima and sorting keep their choice under small steps.
inline Tensor distinct(const Shape& shape, double low = -1.0, double high = 1.0) {
  Tensor result = empty(shape, {.dtype = DType::f64});
  const auto values = result.flat<double>();
  const auto n = static_cast<std::uint64_t>(values.size());
  std::uint64_t stride = n / 2 + 1;
  const auto divides = [](std::uint64_t a, std::uint64_t b) {
    while (b) a = std::exchange(b, a % b);
    return a > 1;
  };
  while (divides(stride, n)) ++stride;
  for (std::uint64_t i = 0; i < n; ++i)
    values[i] = low + (high - low) * static_cast<double>(i * stride % n) / static_cast<double>(n);
  return result;
}

/// Makes inputs of the given shapes, uniform over [low, high).
inline std::function<Tensors()> shapes(std::vector<Shape> list, double low = -2.0,
                                       double high = 2.0) {
  return [=] {
    Tensors tensors;
    for (const Shape& shape : list) tensors.push_back(uniform(shape, low, high));
    return tensors;
  };
}

/// A constant of a case, where its inputs are.
inline Tensor beside(const Tensors& inputs, const Tensor& constant) {
  return constant.to(inputs[0].device());
}

/// The same inputs on another device.
inline Tensors on_device(const Tensors& inputs, Device device) {
  Tensors moved;
  for (const Tensor& input : inputs) moved.push_back(input.to(device));
  return moved;
}

/// Bytes that tensors on a device hold now.
inline std::size_t live_bytes(Device device = cpu) {
  return device_allocator(device).statistics().live_bytes;
}

/// Fails the running test if a graph of the case outlives its tensors, run backward or not.
inline void expect_no_leak(const GradCase& each, Device device = cpu) {
  const Tensors inputs = on_device(each.inputs(), device);
  for (const Tensor& input : inputs) Tensor(input).set_requires_grad();
  // What the case keeps for good is made by the first call.
  (void)each.op(inputs);
  const std::size_t before = live_bytes(device);
  (void)each.op(inputs);
  EXPECT_EQ(live_bytes(device), before) << "after a forward without backward";
  {
    const Tensor output = each.op(inputs);
    output.backward(ones(output.shape(), output.options()), true);
  }
  for (const Tensor& input : inputs) Tensor(input).set_grad({});
  EXPECT_EQ(live_bytes(device), before) << "after a backward that retained the graph";
}

/// The gradients of the gradients of a case, of one of the output that depends on it.
inline Tensors second_gradients(const GradCase& each, const Tensors& inputs) {
  Tensors leaves;
  for (const Tensor& input : inputs)
    if (input.dtype() == DType::f64) leaves.push_back(Tensor(input).set_requires_grad());
  const Tensor y = each.op(inputs);
  const Tensor seed = y * 0.5 + arange(y.numel(), y.options()).reshape(y.shape()) + 1.0;
  Tensor total = zeros({}, y.options());
  for (const Tensor& part : autograd::grad(
           {y}, leaves, {.grad_outputs = {seed}, .allow_unused = true, .create_graph = true}))
    if (part.defined()) total = total + sum(square(part));
  return autograd::grad({total}, leaves, {.allow_unused = true});
}

/// Fails the running test unless a GPU's second derivatives are the CPU's.
inline void expect_second_gradients_of_cpu(const GradCase& each, Device device) {
  const Tensors inputs = each.inputs();
  Tensors expected, actual;
  try {
    expected = second_gradients(each, inputs);
  } catch (const Unsupported&) {
    EXPECT_THROW(second_gradients(each, on_device(inputs, device)), Unsupported);
    return;
  }
  actual = second_gradients(each, on_device(inputs, device));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(actual[i].defined(), expected[i].defined());
    if (!expected[i].defined()) continue;
    const double scale = std::max(1.0, amax(abs(expected[i])).item());
    EXPECT_LT(amax(abs(actual[i].to(cpu) - expected[i])).item(), 1e-9 * scale) << "input " << i;
  }
}

/// Runs all cases on the GPU: against differences there, and without leaving anything alive.
class GradCasesOnGpu : public testing::OnGpu {
 protected:
  static void check(const std::vector<GradCase>& cases) {
    for (const GradCase& each : cases) {
      SCOPED_TRACE(each.name);
      testing::expect_gradients(each.op, on_device(each.inputs(), device));
      expect_no_leak(each, device);
      expect_second_gradients_of_cpu(each, device);
    }
  }
};

/// Names a case in a parameterised suite.
inline std::string case_name(const ::testing::TestParamInfo<GradCase>& info) {
  return info.param.name;
}

}  // namespace lockstep::test
