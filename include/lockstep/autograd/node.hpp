#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "lockstep/autograd/graph_tag.hpp"
#include "lockstep/autograd/place.hpp"
#include "lockstep/core/intrusive_ptr.hpp"
#include "lockstep/core/slab.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// The tape: one node for each recorded op, linked from results to operands.

namespace lockstep::autograd {

class GradientHooks;
class InputGradients;
class Node;

/// The shape of an output, as it was recorded.
class OutputShape {
 public:
  /// Of a tensor that was made just now.
  explicit OutputShape(const Shape& shape) : rank_(shape.size()) {
    for (int i = 0; i < rank_; ++i) {
      // One by one: a copy, wide, of what was stored in parts just now would stall.
      std::int64_t extent = shape[i];
      asm("" : "+r"(extent));
      extents_[static_cast<std::size_t>(i)] = extent;
    }
  }
  bool operator==(const Shape& shape) const noexcept {
    if (shape.size() != rank_) return false;
    for (int i = 0; i < rank_; ++i)
      if (shape[i] != extents_[static_cast<std::size_t>(i)]) return false;
    return true;
  }
  /// The shape, as others take it.
  Shape get() const { return Shape(std::span(extents_.data(), static_cast<std::size_t>(rank_))); }

 private:
  int rank_;
  std::array<std::int64_t, max_rank> extents_;  // rank_ of them
};

/// From a node to the node that made one of its operands.
struct Edge {
  IntrusivePtr<Node> node;   ///< null if the operand needs no gradient
  std::uint32_t output = 0;  ///< which output of `node` the operand is
  DType dtype = DType::f32;  ///< the operand's, and so that of the gradient passed here
  bool delivered = false;    ///< the engine's note: this run has passed a gradient here
  bool summed = false;       ///< another one: that came with the gradient of the node's own output
};

/// What the backward of an op with one output needs of the whole gradient of that. An op that
/// writes the gradient's last part may compute it besides (GradientByproducts).
struct GradientUses {
  int column_sums = -1;  ///< the operand, a bias, whose gradient are the sums of its columns
  std::optional<DType> copy = {};  ///< a dtype in which it is read
  int passes_sums = -1;  ///< the operand that is told of sums (InputGradients::pass_column_sums)
};

/// A recorded op. Nodes know only the nodes of their operands; the result's tensor keeps the node
/// alive. A graph belongs to one thread at a time.
class Node : public RefCounted, public SlabAllocated {
 public:
  /// The op's name, for messages.
  std::string_view name() const noexcept { return name_; }
  /// Later ops have larger numbers; among ready nodes the engine runs the latest first.
  std::uint64_t sequence() const noexcept { return sequence_; }
  /// The part of the model that recorded it.
  PlaceId place() const noexcept { return place_; }
  /// The mark of the scope that recorded it.
  GraphTag tag() const noexcept { return tag_; }
  /// Edges to the operands, in the order of the op's arguments.
  virtual std::span<Edge> edges() noexcept = 0;
  /// One slot an output, where the engine gathers the gradient.
  virtual std::span<Tensor> gradients() noexcept = 0;
  /// The shape of an output, and so of the gradients that may arrive for it. The outputs of a leaf
  /// are the shapes it has had.
  const OutputShape& output_shape(std::size_t output) const noexcept { return shapes_[output]; }
  /// Computes the operands' gradients from `gradients()` and hands them to `inputs`.
  virtual void backward(InputGradients& inputs) = 0;
  /// Frees what backward would need again.
  virtual void release() noexcept = 0;
  /// See GradientUses.
  virtual GradientUses gradient_uses() const noexcept { return {}; }
  /// True if backward can sum the columns of another array besides.
  virtual bool sums_columns() const noexcept { return false; }
  /// True if backward makes use of InputGradients::column_sums.
  virtual bool uses_column_sums() const noexcept { return false; }
  /// True if backward can be recorded itself; see Differentiable.
  virtual bool is_differentiable() const noexcept { return false; }
  /// True for nodes that collect the gradient of a leaf.
  virtual bool is_leaf() const noexcept { return false; }

  /// The hooks of users on the node's outputs; null until there is one.
  GradientHooks* hooks() const noexcept { return hooks_; }
  /// The same as a list to add to.
  GradientHooks& make_hooks();

 protected:
  explicit Node(std::string_view name) noexcept;
  /// Says where the node keeps the shapes of its outputs.
  void set_output_shapes(const OutputShape* shapes) noexcept { shapes_ = shapes; }
  /// Iterative, so that dropping a chain of a million ops does not overflow the stack.
  void destroy() noexcept override;

 private:
  friend class Engine;
  friend class InputGradients;
  void drop_hooks() noexcept;

  const PlaceId place_;  // first, where the base class leaves room
  std::string_view name_;
  const OutputShape* shapes_ = nullptr;
  std::uint64_t sequence_;
  std::uint64_t run_ = 0;      // the engine run that last visited this node
  std::uint32_t waiting_ = 0;  // edges of this run that have not delivered yet
  GraphTag tag_ : 31;          // of the scope that recorded it
  GraphTag released_ : 1 = 0;
  union {
    GradientHooks* hooks_ = nullptr;  // a share in them
    Node* next_dead_;                 // of a node that waits to be deleted
  };
};

/// The node of a tensor that requires a gradient; null otherwise.
inline IntrusivePtr<Node> node_of(const Tensor& tensor) {
  if (!tensor.requires_grad()) return {};
  return IntrusivePtr<Node>(static_cast<Node*>(tensor.impl().node.get()));
}

/// The edge that leads to a tensor.
inline Edge edge_to(const Tensor& tensor) {
  if (!tensor.requires_grad()) return {};
  return {node_of(tensor), tensor.impl().output_index, tensor.dtype(), false};
}

}  // namespace lockstep::autograd
