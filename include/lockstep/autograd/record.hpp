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
/// How the result of an op enters the tape: a node that keeps what backward needs, with edges to
/// the operands. Ops come here through OpCall (op_call.hpp).

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
  template <class Function>
  OpNode(std::string_view name, Function&& backward, Edges&& edges, Slots&& slots = {})
      : Node(name),
        backward_(std::forward<Function>(backward)),
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

/// The tensor, or an alias of it if it has a place in the graph already: that is somebody else's,
/// as it is where an op gives back an operand.
inline Tensor unrecorded(Tensor output) {
  if (output.impl().node) [[unlikely]]
    return output.detach();
  return output;
}

/// Records an op with one output.
template <class Backward, class Edges>
Tensor attach(std::string_view name, Tensor output, Backward&& backward, Edges&& edges) {
  using Op = OpNode<std::decay_t<Backward>, Edges, std::array<Tensor, 1>>;
  output = unrecorded(std::move(output));
  output.impl().node = make_intrusive<Op>(name, std::forward<Backward>(backward), std::move(edges));
  return output;
}

/// The same for several outputs.
template <class Backward, class Edges>
void attach_outputs(std::string_view name, std::span<Tensor> outputs, Backward&& backward,
                    Edges&& edges) {
  using Op = OpNode<std::decay_t<Backward>, Edges, std::vector<Tensor>>;
  const auto node = make_intrusive<Op>(name, std::forward<Backward>(backward), std::move(edges),
                                       std::vector<Tensor>(outputs.size()));
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    outputs[i] = unrecorded(std::move(outputs[i]));
    outputs[i].impl().node = node;
    outputs[i].impl().output_index = static_cast<std::uint32_t>(i);
  }
}

}  // namespace detail

}  // namespace lockstep::autograd
