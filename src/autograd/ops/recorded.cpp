#include "autograd/ops/recorded.hpp"

#include "autograd/partial_gradients.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/autograd/ops/reduce.hpp"
#include "lockstep/tensor/factories.hpp"

namespace lockstep::autograd {
namespace {

constexpr OpDescriptor operand_op{.name = "operand", .dtypes = DTypeRule::any};

/// An operand in a place of its own: the op may have it twice.
Tensor apart(const Tensor& operand) {
  const OpCall call(operand_op, operand);
  return call.record(operand.detach(), Differentiable{[](const Tensor& dy, InputGradients& inputs) {
                       inputs.set(0, dy);
                     }});
}

}  // namespace

Tensor unread_operand(const InputGradients& inputs, std::size_t i, Device device) {
  if (!inputs.wanted(i)) return {};
  return inputs.operand(
      i, SavedTensor(zeros(inputs.operand_shape(i), {inputs.operand_dtype(i), device})));
}

void set_composed(InputGradients& inputs, const Tensor& dy, const std::vector<Tensor>& operands,
                  const Composition& composition) {
  set_composed(inputs, {&dy, 1}, operands,
               [&](std::span<const Tensor> in) { return std::vector{composition(in)}; });
}

void set_composed(InputGradients& inputs, std::span<const Tensor> dys,
                  const std::vector<Tensor>& operands, const Compositions& composition) {
  std::vector<Tensor> own(operands), wanted;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (!own[i].defined() || !inputs.wanted(i)) continue;
    own[i] = apart(own[i]);
    wanted.push_back(own[i]);
    places.push_back(i);
  }
  if (wanted.empty()) return;
  const std::vector<Tensor> all = composition(own);
  std::vector<Tensor> results, gradients;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!dys[i].defined() || !all[i].requires_grad()) continue;
    results.push_back(all[i]);
    gradients.push_back(dys[i].to(all[i].dtype()));
  }
  gradients = partial_gradients(results, wanted, gradients);
  for (std::size_t i = 0; i < places.size(); ++i)
    inputs.set(places[i], gradients[i].defined()
                              ? gradients[i]
                              : (sum(dys[0]) * 0.0).expand(wanted[i].shape()));  // of no elements
}

}  // namespace lockstep::autograd
