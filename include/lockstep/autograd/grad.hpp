#pragma once

#include <span>
#include <vector>

#include "lockstep/tensor/tensor.hpp"

/// @file
/// Gradients with respect to given tensors.

namespace lockstep::autograd {

/// Options of `grad`.
struct GradOptions {
  /// Gradient of each output; undefined, or none at all: 1, for outputs of one element.
  std::vector<Tensor> grad_outputs = {};
  bool retain_graph = false;  ///< keep what backward needs, for another one
  bool allow_unused = false;  ///< an input that no output depends on gets an undefined gradient
  bool create_graph = false;  ///< true is refused: see below
};

/// The gradients of the sum of `outputs` with respect to each of `inputs`, leaves or computed
/// tensors. Only what lies between them is computed, and its graph freed; `.grad()` of no tensor
/// changes, and no hook of another tensor than the inputs and those between runs.
///
///     const Tensor direction = autograd::grad(loss, {image})[0].sign();
///
/// Results are not recorded: there are no second derivatives, and in a loss, as a penalty on a
/// gradient, they are constants.
/// @throws InvalidArgument for an output or input that requires no gradient, for one that is not
/// used, unless allowed, for grad_outputs that do not fit, and for a graph that goes through a
/// DistributedDataParallel, whose backward is to reach all parameters: call its module instead;
/// Unsupported for `create_graph`.
std::vector<Tensor> grad(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                         const GradOptions& options = {});
/// The same of lists.
inline std::vector<Tensor> grad(const std::vector<Tensor>& outputs,
                                const std::vector<Tensor>& inputs,
                                const GradOptions& options = {}) {
  return grad(std::span<const Tensor>(outputs), std::span<const Tensor>(inputs), options);
}
/// The same of one output.
inline std::vector<Tensor> grad(const Tensor& output, const std::vector<Tensor>& inputs,
                                const GradOptions& options = {}) {
  return grad(std::span(&output, 1), std::span<const Tensor>(inputs), options);
}

}  // namespace lockstep::autograd
