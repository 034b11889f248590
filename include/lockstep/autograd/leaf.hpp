#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/autograd/node.hpp"

/// @file
/// Where gradients end: the node of a leaf tensor.

namespace lockstep::autograd {

/// Where a backward may write a gradient without a copy.
struct GradientTarget {
  Tensor tensor;            ///< contiguous, of the operand's shape and dtype
  bool accumulate = false;  ///< add to what it holds instead of overwriting
};

/// Collects the gradient of a leaf. A leaf may own a *sink*, memory that backward writes straight
/// into: a bucket of the data-parallel reducer. Hooks fire once in each backward that reaches the
/// leaf, when its gradient is final.
class LeafNode final : public Node {
 public:
  /// Called with the leaf whose gradient has just become final, on the thread that runs backward.
  using Hook = std::function<void(LeafNode&)>;

  /// The node of a leaf of the given shape, dtype and device.
  explicit LeafNode(const Tensor& tensor);

  /// The gradient; undefined if there is none.
  Tensor gradient() const { return fresh_ ? Tensor() : gradient_; }
  /// Replaces the gradient; undefined clears it. With a sink, the values are copied there.
  /// @throws InvalidArgument for another shape, dtype or device.
  void set_gradient(const Tensor& gradient);
  /// Forgets the gradient. A sink stays and is overwritten by the next backward.
  void clear_gradient() noexcept;

  /// Lets backward write into `sink` from now on (undefined: no more). A present gradient moves
  /// there. @throws InvalidArgument unless the sink is contiguous and fits.
  void set_sink(const Tensor& sink);
  /// The sink; undefined without one.
  const Tensor& sink() const noexcept { return has_sink_ ? gradient_ : none(); }

  /// Adds a hook and returns a number to remove it by.
  std::uint64_t add_hook(Hook hook);
  /// Removes a hook; unknown numbers are ignored.
  void remove_hook(std::uint64_t id) noexcept;

  /// Adds a contribution to the gradient.
  void accumulate(Tensor contribution);
  /// Where an op may write its contribution; it must call `commit` afterwards.
  GradientTarget target() const;
  /// Takes what was written into `target`.
  void commit(const Tensor& written);
  /// Fires the hooks.
  void finish();

  std::span<Edge> edges() noexcept override { return {}; }
  std::span<Tensor> gradients() noexcept override { return {}; }
  void backward(InputGradients&) override {}
  void release() noexcept override {}
  bool is_leaf() const noexcept override { return true; }

 private:
  static const Tensor& none() noexcept;
  void check_fits(const Tensor& tensor, std::string_view what) const;

  Shape shape_;
  TensorOptions options_;
  Tensor gradient_;  // the sink if there is one
  bool has_sink_ = false;
  bool fresh_ = false;  // the sink holds nothing yet: overwrite
  std::uint64_t next_hook_ = 0;
  std::vector<std::pair<std::uint64_t, Hook>> hooks_;
};

/// The leaf node of a tensor. @throws InvalidArgument unless it is a leaf that requires a gradient.
LeafNode& leaf_of(const Tensor& tensor);

}  // namespace lockstep::autograd
