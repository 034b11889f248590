#include "lockstep/autograd/grad_check.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <sstream>

#include "lockstep/autograd/grad.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/ops/shape.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/tensor/factories.hpp"

namespace lockstep {
namespace {

/// Irregular weights of the outputs: gradients that are permuted, or summed, do not pass.
std::vector<double> output_weights(std::int64_t count) {
  std::vector<double> weights(static_cast<std::size_t>(count));
  double i = 0;
  for (double& weight : weights) weight = 0.3 + std::cos(1.7 * i++ + 0.4);
  return weights;
}

/// The sum of the weighted outputs; compensated, for its rounding would limit the differences.
double weighted_sum(const Tensor& output, const std::vector<double>& weights) {
  const std::vector<double> values = output.to_vector<double>();
  double sum = 0, lost = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double term = values[i] * weights[i] - lost, next = sum + term;
    lost = (next - sum) - term;
    sum = next;
  }
  return sum;
}

/// One input whose gradient is asked for, and the function of all.
class Differences {
 public:
  Differences(const GradCheckFunction& function, const std::vector<Tensor>& inputs,
              const std::vector<double>& weights, double step)
      : function_(function), inputs_(inputs), weights_(weights), step_(step) {}

  /// The gradient of an element by differences; the element is as before afterwards.
  double slope(const Tensor& input, std::int64_t at, double value) const {
    Tensor element = input.detach().reshape({-1}).narrow(0, at, 1);
    const double above = output_at(element, value + step_);
    const double below = output_at(element, value - step_);
    element.fill_(value);
    return (above - below) / (2 * step_);
  }

 private:
  double output_at(Tensor& element, double value) const {
    element.fill_(value);
    return weighted_sum(function_(inputs_), weights_);
  }

  const GradCheckFunction& function_;
  const std::vector<Tensor>& inputs_;
  const std::vector<double>& weights_;
  double step_;
};

bool is_checked(const Tensor& input) { return input.defined() && input.dtype() == DType::f64; }

void prepare(std::vector<Tensor>& inputs) {
  LOCKSTEP_CHECK(std::ranges::any_of(inputs, is_checked), InvalidArgument,
                 "grad_check: none of the ", inputs.size(),
                 " inputs is f64; differences need that precision");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!is_checked(inputs[i])) continue;
    LOCKSTEP_CHECK(inputs[i].is_leaf() && inputs[i].is_contiguous(), InvalidArgument,
                   "grad_check: input ", i, " of shape ", inputs[i].shape(), " and strides ",
                   inputs[i].strides(),
                   " must be a contiguous leaf; pass contiguous().detach(), and make the view "
                   "inside the function");
    inputs[i].set_requires_grad().set_grad({});
  }
}

/// Compares the gradients of one input; the message if they differ.
std::string compare(const std::vector<double>& actual, const std::vector<double>& expected,
                    std::size_t input, double tolerance) {
  double largest = 1e-2;  // where the true gradient is 0, differences still round
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (std::abs(actual[i] - expected[i]) <= tolerance * largest) continue;
    lockstep::detail::TextStream text;
    text.precision(12);
    text << "input " << input << ", element " << i << ": backward gives " << actual[i]
         << ", differences give " << expected[i] << " (allowed: " << tolerance * largest << ")";
    return text.str();
  }
  return {};
}

void check_output(const Tensor& output) {
  LOCKSTEP_CHECK(output.dtype() == DType::f64 && output.requires_grad(), InvalidArgument,
                 "grad_check: the output has dtype ", output.dtype(), " and ",
                 output.requires_grad() ? "depends" : "does not depend",
                 " on an input; it must be f64 and recorded");
}

/// What an input has as its gradient; none counts as 0 where that is no fault.
std::vector<double> values_of(const Tensor& gradient, const Tensor& input) {
  if (gradient.defined()) return gradient.to_vector<double>();
  return std::vector<double>(static_cast<std::size_t>(input.numel()));
}

/// @param all whether an input without a gradient is a fault
GradCheckResult check(const GradCheckFunction& function, std::vector<Tensor>& inputs,
                      GradCheckOptions options, bool all) {
  prepare(inputs);
  const Tensor output = function(inputs);
  if (all) check_output(output);
  const std::vector<double> weights = output_weights(output.numel());
  if (output.requires_grad())
    output.backward(from_span<double>(weights, output.shape(), output.device()));

  const NoGradGuard no_recording;
  const Differences differences(function, inputs, weights, options.step);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!is_checked(inputs[i])) continue;
    const Tensor gradient = inputs[i].grad();
    if (all && !gradient.defined())
      return {lockstep::detail::concat("input ", i, " got no gradient")};
    const std::vector<double> values = inputs[i].to_vector<double>();
    std::vector<double> expected;
    for (std::size_t k = 0; k < values.size(); ++k)
      expected.push_back(differences.slope(inputs[i], static_cast<std::int64_t>(k), values[k]));
    std::string mismatch = compare(values_of(gradient, inputs[i]), expected, i, options.tolerance);
    inputs[i].set_grad({});
    if (!mismatch.empty()) return {std::move(mismatch)};
  }
  return {};
}

}  // namespace

GradCheckResult grad_check(const GradCheckFunction& function, std::vector<Tensor> inputs,
                           GradCheckOptions options) {
  return check(function, inputs, options, true);
}

GradCheckResult grad_grad_check(const GradCheckFunction& function, std::vector<Tensor> inputs,
                                GradCheckOptions options) {
  prepare(inputs);
  const Tensor output = function(inputs);
  check_output(output);
  const std::vector<double> weights = output_weights(output.numel());
  inputs.push_back(from_span<double>(weights, output.shape(), output.device()));
  const auto gradients = [&](const std::vector<Tensor>& in) {
    const GradModeGuard recorded(true);
    const std::vector<Tensor> operands(in.begin(), in.end() - 1);
    std::vector<Tensor> checked, parts;
    std::ranges::copy_if(operands, std::back_inserter(checked), is_checked);
    for (const Tensor& part :
         autograd::grad({function(operands)}, checked,
                        {.grad_outputs = {in.back()}, .allow_unused = true, .create_graph = true}))
      if (part.defined()) parts.push_back(part.reshape({-1}));
    return cat(parts, 0);
  };
  return check(gradients, inputs, options, false);  // of a linear op some have none
}

}  // namespace lockstep
