#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "functional/op_list.hpp"
#include "lockstep/autograd/op_call.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// Gradients that are recorded themselves, for second derivatives (ADR 0051).

namespace lockstep::autograd {

/// What the gradient of a linear op is called in the graph of gradients.
constexpr OpDescriptor adjoint_of(std::string_view op) {
  return {.name = op, .dtypes = DTypeRule::any, .operands = OperandDTypes::own};
}

/// The gradient `compute(dy)` of an op that is linear in the operand, recorded if this backward is:
/// its own gradient is the op again.
/// @param op name that lives on: of a descriptor
/// @param forward the op, by recorded ops, as a function of what has the operand's shape
template <class Compute, class Forward>
Tensor adjoint(const InputGradients& inputs, std::string_view op, const Tensor& dy,
               const Compute& compute, Forward forward) {
  if (!inputs.creates_graph()) return compute(dy);
  const OpDescriptor descriptor = adjoint_of(op);
  const OpCall call(descriptor, dy);
  const Tensor dx = no_grad([&] { return compute(dy); });
  if (!call.recording()) return dx;
  return call.record(
      dx, Differentiable{[forward = std::move(forward)](const Tensor& ddx, InputGradients& ddy) {
        ddy.set(0, forward(ddx));
      }});
}

/// Operand `i`, if its gradient is wanted, where no gradient depends on its values, so that nobody
/// saved them: of zeros, in its place in the graph. Else undefined.
Tensor unread_operand(const InputGradients& inputs, std::size_t i, Device device);

/// What a fused op is composed of, as a function of its operands.
using Composition = std::function<Tensor(std::span<const Tensor>)>;
/// The same of an op with several results.
using Compositions = std::function<std::vector<Tensor>(std::span<const Tensor>)>;

/// Hands over the gradients of a fused op, recorded, as those of recorded ops.
/// @param operands as InputGradients::operand gives them; those after the last wanted may miss
void set_composed(InputGradients& inputs, const Tensor& dy, const std::vector<Tensor>& operands,
                  const Composition& composition);
/// The same of several results. @param dys undefined where none came
void set_composed(InputGradients& inputs, std::span<const Tensor> dys,
                  const std::vector<Tensor>& operands, const Compositions& composition);

/// The gradient of an elementwise function of ops.def, recorded.
/// @param x, y with their places in the graph; that which the op did not save is undefined
Tensor recorded_gradient(UnaryOp op, const Tensor& dy, const Tensor& x, const Tensor& y,
                         const OpConstants& constants);
/// The gradients of both operands, in the shape of the result.
std::pair<Tensor, Tensor> recorded_gradients(BinaryOp op, const Tensor& dy, const Tensor& a,
                                             const Tensor& b, const OpConstants& constants);

}  // namespace lockstep::autograd
