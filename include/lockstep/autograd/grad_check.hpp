#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/tensor/tensor.hpp"

/// @file
/// Checks the backward of an op against central differences of its forward.

namespace lockstep {

/// The function to check: from inputs to one f64 output of any shape. It must give the same result
/// for the same inputs, so one that draws random numbers seeds them itself.
using GradCheckFunction = std::function<Tensor(const std::vector<Tensor>& inputs)>;

/// Options of `grad_check`.
struct GradCheckOptions {
  double step = 1e-5;       ///< distance to either side
  double tolerance = 1e-6;  ///< of the largest gradient of an input
};

/// What `grad_check` found.
struct GradCheckResult {
  /// Which element of which input is wrong, its gradient and that of the differences; empty if
  /// all agree.
  std::string mismatch;
  /// True if all agree.
  explicit operator bool() const noexcept { return mismatch.empty(); }
};

/// Compares backward with central differences for every element of every f64 input, as in
///
///     EXPECT_TRUE(grad_check([](const auto& in) { return my_op(in[0], in[1]); }, {a, b}));
///
/// Each element costs two forwards. The inputs are changed and restored in place, so the parameters
/// of a module may be among them; those that are not f64 (an index) pass through.
/// @param inputs contiguous leaves, on any device. f64 ones are made to require a gradient; what
/// they had as `grad()` is lost.
/// @throws InvalidArgument if no input is f64, or one is not contiguous or no leaf, or the output
/// is not f64 or depends on none of them.
GradCheckResult grad_check(const GradCheckFunction& function, std::vector<Tensor> inputs,
                           GradCheckOptions options = {});

/// The same for second derivatives: compares the backward of the gradients, those of all f64 inputs
/// by a gradient of the output that counts as the last input, with central differences of them.
/// @throws as grad_check; Unsupported for an op whose gradient cannot be differentiated.
GradCheckResult grad_grad_check(const GradCheckFunction& function, std::vector<Tensor> inputs,
                                GradCheckOptions options = {});

}  // namespace lockstep
