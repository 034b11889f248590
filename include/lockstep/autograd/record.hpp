#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/autograd/engine.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/node.hpp"
#include "lockstep/autograd/saved_tensor.hpp"

/// @file
/// How an op enters the tape. An op computes its result, and if `recording(operands...)`, passes
/// the result through `record` with a function that computes the operands' gradients:
///
///     Tensor exp(const Tensor& x) {
///       Tensor y = ...;
///       if (!recording(x)) return y;
///       auto saved = SavedTensor::of_result(y);
///       return record("exp", y, [saved](const Tensor& dy, InputGradients& dx) {
///         dx.set(0, mul(dy, saved.get("exp")));
///       }, x);
///     }

namespace lockstep::autograd {

/// True if recording is on and at least one operand requires a gradient.
template <class... Tensors>
bool recording(const Tensors&... operands) {
  return (operands.requires_grad() || ...) && grad_enabled();
}

/// True if recording is on and at least one operand of a list requires a gradient.
inline bool recording_any(std::span<const Tensor> operands) {
  if (!grad_enabled()) return false;
  for (const Tensor& operand : operands)
    if (operand.requires_grad()) return true;
  return false;
}

namespace detail {

/// Node of an op whose gradient is computed by a callable. `Edges` and `Slots` are containers of
/// Edge and Tensor: arrays where the number is known, else vectors.
template <class Backward, class Edges, class Slots>
class OpNode final : public Node {
 public:
  OpNode(std::string_view name, Backward backward, Edges edges, Slots slots = {})
      : Node(name),
        backward_(std::move(backward)),
        edges_(std::move(edges)),
        gradients_(std::move(slots)) {}

  std::span<Edge> edges() noexcept override { return edges_; }
  std::span<Tensor> gradients() noexcept override { return gradients_; }
  void release() noexcept override { backward_.reset(); }

  void backward(InputGradients& inputs) override {
    if constexpr (std::is_invocable_v<Backward&, const Tensor&, InputGradients&>)
      (*backward_)(gradients_[0], inputs);
    else
      (*backward_)(std::span<const Tensor>(gradients_), inputs);
  }

 private:
  std::optional<Backward> backward_;
  Edges edges_;
  Slots gradients_;
};

template <class Backward, class Edges>
Tensor attach(std::string_view name, Tensor output, Backward&& backward, Edges edges) {
  using Op = OpNode<std::decay_t<Backward>, Edges, std::array<Tensor, 1>>;
  output.impl().node = make_intrusive<Op>(name, std::forward<Backward>(backward), std::move(edges));
  return output;
}

}  // namespace detail

/// Records an op with one output.
/// @param backward called with (gradient of the output, InputGradients of the operands).
template <class Backward, class... Tensors>
Tensor record(std::string_view name, Tensor output, Backward&& backward,
              const Tensors&... operands) {
  return detail::attach(name, std::move(output), std::forward<Backward>(backward),
                        std::array<Edge, sizeof...(Tensors)>{edge_to(operands)...});
}

/// Records an op with one output and a list of operands.
template <class Backward>
Tensor record_list(std::string_view name, Tensor output, Backward&& backward,
                   std::span<const Tensor> operands) {
  std::vector<Edge> edges;
  edges.reserve(operands.size());
  for (const Tensor& operand : operands) edges.push_back(edge_to(operand));
  return detail::attach(name, std::move(output), std::forward<Backward>(backward),
                        std::move(edges));
}

/// Records an op with several outputs.
/// @param backward called with (span of the outputs' gradients, undefined where none came,
/// InputGradients of the operands).
template <class Backward, class... Tensors>
void record_outputs(std::string_view name, std::span<Tensor> outputs, Backward&& backward,
                    const Tensors&... operands) {
  using Edges = std::array<Edge, sizeof...(Tensors)>;
  using Op = detail::OpNode<std::decay_t<Backward>, Edges, std::vector<Tensor>>;
  const auto node =
      make_intrusive<Op>(name, std::forward<Backward>(backward), Edges{edge_to(operands)...},
                         std::vector<Tensor>(outputs.size()));
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    outputs[i].impl().node = node;
    outputs[i].impl().output_index = static_cast<std::uint32_t>(i);
  }
}

}  // namespace lockstep::autograd
