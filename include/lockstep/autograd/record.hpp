#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
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

/// A backward that can be recorded itself, for second derivatives: `record(y, Differentiable{f})`.
/// Where InputGradients::creates_graph() says so, it computes with recorded ops alone, of the
/// gradient it is given and what InputGradients::operand and InputGradients::result make of what it
/// saved; and hands over what it has by `set`.
template <class Backward>
struct Differentiable : Backward {
  static constexpr bool is_differentiable = true;
};
/// Of a callable.
template <class Backward>
Differentiable(Backward) -> Differentiable<Backward>;

/// True if recording is on and at least one operand of a list requires a gradient.
inline bool recording_any(std::span<const Tensor> operands) {
  if (!grad_enabled()) return false;
  for (const Tensor& operand : operands)
    if (operand.requires_grad()) return true;
  return false;
}

namespace detail {

/// Node of an op whose gradient is computed by a callable. `Edges`, `Slots` and `Shapes` are
/// containers of Edge, Tensor and OutputShape: arrays where the number is known, else vectors.
template <class Backward, class Edges, class Slots, class Shapes>
class OpNode final : public Node {
 public:
  /// @param make_edges called for the edges, so that they are made where they stay
  /// @param make_shapes called likewise
  template <class Function, class MakeEdges, class MakeShapes>
  OpNode(std::string_view name, Function&& backward, MakeEdges&& make_edges,
         MakeShapes&& make_shapes, Slots&& slots = {})
      : Node(name),
        backward_(std::forward<Function>(backward)),
        edges_(make_edges()),
        gradients_(std::move(slots)),
        shapes_(make_shapes()) {
    set_output_shapes(shapes_.data());
  }

  std::span<Edge> edges() noexcept override { return edges_; }
  std::span<Tensor> gradients() noexcept override { return gradients_; }
  void release() noexcept override { backward_.reset(); }
  GradientUses gradient_uses() const noexcept override {
    if constexpr (requires { backward_->gradient_uses(); })
      if (backward_) return backward_->gradient_uses();
    return {};
  }
  bool sums_columns() const noexcept override {
    return requires { Backward::sums_columns; };
  }
  bool uses_column_sums() const noexcept override {
    return requires { Backward::uses_column_sums; };
  }
  bool is_differentiable() const noexcept override {
    return requires { Backward::is_differentiable; };
  }

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
  Shapes shapes_;
};

/// Makes an output that has a place in the graph, or is an operand, an alias of itself: that place
/// is somebody else's.
inline void make_recordable(Tensor& output, bool is_operand) {
  if (output.impl().node || is_operand) [[unlikely]]
    output = output.detach();
}

/// Records an op with one output.
template <class Backward, class MakeEdges>
Tensor attach(std::string_view name, Tensor output, Backward&& backward,
              const MakeEdges& make_edges) {
  const auto shape = [&] { return std::array{OutputShape(output.shape())}; };
  using Op = OpNode<std::decay_t<Backward>, decltype(make_edges()), std::array<Tensor, 1>,
                    decltype(shape())>;
  output.impl().node =
      make_intrusive<Op>(name, std::forward<Backward>(backward), make_edges, shape);
  return output;
}

/// The same for several outputs.
template <class Backward, class MakeEdges>
void attach_outputs(std::string_view name, std::span<Tensor> outputs, Backward&& backward,
                    const MakeEdges& make_edges) {
  const auto shapes = [&] {
    std::vector<OutputShape> all;
    all.reserve(outputs.size());
    for (const Tensor& output : outputs) all.emplace_back(output.shape());
    return all;
  };
  using Op = OpNode<std::decay_t<Backward>, decltype(make_edges()), std::vector<Tensor>,
                    std::vector<OutputShape>>;
  const auto node = make_intrusive<Op>(name, std::forward<Backward>(backward), make_edges, shapes,
                                       std::vector<Tensor>(outputs.size()));
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!is_floating(outputs[i].dtype())) continue;  // positions, say, have no gradient
    make_recordable(outputs[i], false);
    outputs[i].impl().node = node;
    outputs[i].impl().output_index = static_cast<std::uint32_t>(i);
  }
}

}  // namespace detail

}  // namespace lockstep::autograd
