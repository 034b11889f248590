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
  bool create_graph = false;  ///< record the gradients, for derivatives of them; keeps the graph
};

/// The gradients of the sum of `outputs` with respect to each of `inputs`, leaves or computed
/// tensors. Only what lies between them is computed, and its graph freed; `.grad()` of no tensor
/// changes, and no hook of another tensor than the inputs and those between runs.
///
///     const Tensor direction = autograd::grad(loss, {image})[0].sign();
///
/// With `create_graph` results are recorded themselves: a loss may hold them, as a penalty on a
/// gradient or a differential equation does, and derivatives of any order follow. Without it they
/// are constants.
///
///     const Tensor slope = autograd::grad(critic(x).sum(), {x}, {.create_graph = true})[0];
///     (loss + 10 * square(norm(slope, {1}) - 1).mean()).backward();
///
/// @throws InvalidArgument for an output or input that requires no gradient, for one that is not
/// used, unless allowed, for grad_outputs that do not fit, and, with neither `retain_graph` nor
/// `create_graph`, for a graph that goes through a DistributedDataParallel, whose backward is to
/// reach all parameters: call its module instead; Unsupported for `create_graph` through an op
/// whose gradient cannot be differentiated (linear_cross_entropy, SyncBatchNorm, collectives, and
/// ops of one's own that are not `Differentiable`).
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
