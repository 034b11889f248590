#include <algorithm>
#include <utility>

#include "autograd/ops/common.hpp"
#include "lockstep/autograd/engine.hpp"
#include "lockstep/autograd/gradient_hooks.hpp"

/// @file
/// Gradients of biases that are computed beside other gradients.

namespace lockstep::autograd {
namespace {

bool has_hooks(const Node& node) { return node.hooks() && !node.hooks()->empty(); }

bool is_bias(const Edge& edge, std::int64_t columns) {
  return edge.node && edge.node->is_leaf() &&
         edge.node->output_shape(edge.output) == Shape{columns};
}

}  // namespace

bool ColumnSums::has_parts() const {
  return parts[0].columns > 0 && std::ranges::all_of(parts, [](const Part& part) {
           return !part.rows.defined() || part.rows.impl().value_stamp() == part.stamp;
         });
}

/// True if `dx`, which is being written for an edge, will be all of the gradient of an op's only
/// output, and go to that op as it is.
bool InputGradients::completes(const Edge& edge, const Tensor& dx) {
  if (!dx.defined() || edge.node->is_leaf() || dx.dtype() != edge.dtype) return false;
  Node& node = *edge.node;
  const auto gradients = node.gradients();
  return node.waiting_ == 1 && !has_hooks(node) && gradients.size() == 1 && !gradients[0].defined();
}

/// Memory for the gradient of a bias; none if it is not of that dtype, or gets another contribution
/// from the same kernel.
GradientTarget InputGradients::sums_target(const Edge& bias, TensorOptions options) {
  const auto is_same = [&](const IntrusivePtr<Node>& other) { return other == bias.node; };
  if (bias.dtype != options.dtype || std::ranges::any_of(edges_, is_same, &Edge::node) ||
      std::ranges::any_of(sums_, is_same, &Sums::leaf))
    return {};
  GradientTarget target = static_cast<LeafNode&>(*bias.node)
                              .target(bias.node->output_shape(bias.output).get(), options);
  sums_[sums_[0].leaf ? 1 : 0] = {bias.node, target.tensor};
  return target;
}

GradientByproducts InputGradients::byproducts(std::size_t i, const Tensor& dx,
                                              TensorOptions options, DType returned) {
  GradientByproducts found;
  const auto left = std::ranges::find(engine_.left_sums_, &node_, &Engine::LeftSums::node);
  if (left != engine_.left_sums_.end() && left->of.dtype() == returned) {
    found.sums = sums_target(left->bias, options);
    if (found.sums.tensor.defined()) {
      found.summand = std::move(left->of);
      if (left->known.has_parts()) found.known = std::move(left->known);
      engine_.left_sums_.erase(left);
    }
  }
  if (!wanted(i) || !completes(edges_[i], dx)) return found;
  Node& node = *edges_[i].node;
  const GradientUses uses = node.gradient_uses();
  if (uses.copy == returned && returned != dx.dtype()) {
    found.dx_copy = fresh(dx.shape(), {returned, dx.device()});
    engine_.copies_.push_back({&node, found.dx_copy});
  }
  if (uses.column_sums < 0) return found;
  Edge& bias = engine_.edges_of(node)[static_cast<std::size_t>(uses.column_sums)];
  if (bias.delivered || !is_bias(bias, dx.size(-1))) return found;
  found.dx_sums = sums_target(bias, options);
  bias.summed = bias.delivered = found.dx_sums.tensor.defined();
  if (!bias.summed || uses.passes_sums < 0) return found;
  const Edge& before = engine_.edges_of(node)[static_cast<std::size_t>(uses.passes_sums)];
  if (!before.node || !before.node->uses_column_sums()) return found;
  found.dx_totals = fresh({dx.size(-1)}, {statistics_dtype(dx.dtype()), dx.device()});
  engine_.known_sums_.push_back({&node, {.totals = found.dx_totals}});
  return found;
}

bool InputGradients::leave_column_sums(std::size_t i, std::size_t through, const Tensor& dy) {
  if (!wanted(i) || !wanted(through)) return false;
  Edge& bias = edges_[i];
  const Node& before = *edges_[through].node;
  if (before.waiting_ != 1 || !before.sums_columns() || bias.delivered || has_hooks(node_) ||
      !dy.is_contiguous() || !is_bias(bias, dy.size(-1)) ||
      (bias.dtype != dy.dtype() && bias.dtype != statistics_dtype(dy.dtype())))
    return false;
  bias.delivered = true;
  engine_.left_sums_.push_back({&before, bias, dy, column_sums()});
  return true;
}

void InputGradients::pass_column_sums(std::size_t i, const Tensor& dx, ColumnSums sums) {
  if (!wanted(i) || !completes(edges_[i], dx) || !edges_[i].node->uses_column_sums()) return;
  for (ColumnSums::Part& part : sums.parts)
    if (part.rows.defined() && !part.stamp) {
      part.rows = part.rows.detach();  // for a parameter that is not gathered any more has no array
      part.stamp = part.rows.impl().value_stamp();
    }
  engine_.known_sums_.push_back({edges_[i].node.get(), std::move(sums)});
}

ColumnSums InputGradients::column_sums() const {
  const auto known = std::ranges::find(engine_.known_sums_, &node_, &Engine::KnownSums::node);
  return known != engine_.known_sums_.end() && !has_hooks(node_) ? known->sums : ColumnSums{};
}

Tensor InputGradients::converted(const Tensor& dy, DType dtype) const {
  const auto copy = std::ranges::find(engine_.copies_, &node_, &Engine::Copy::node);
  const bool is_same =
      copy != engine_.copies_.end() && !has_hooks(node_) && copy->gradient.dtype() == dtype;
  return is_same ? copy->gradient : dy.to(dtype);
}

void InputGradients::commit_sums() {
  for (const Sums& sums : sums_)
    if (sums.leaf) static_cast<LeafNode&>(*sums.leaf).commit(sums.written);
}

void InputGradients::arrive_sums() {
  for (Sums& sums : sums_)
    if (const IntrusivePtr<Node> leaf = std::exchange(sums.leaf, {})) engine_.arrive(*leaf);
}

/// What has not been computed beside the backward of a node is computed now.
void Engine::drop_byproducts(const Node& node) {
  std::erase_if(copies_, [&](const Copy& copy) { return copy.node == &node; });
  std::erase_if(known_sums_, [&](const KnownSums& known) { return known.node == &node; });
  for (;;) {
    const auto left = std::ranges::find(left_sums_, &node, &LeftSums::node);
    if (left == left_sums_.end()) return;
    const LeftSums sums = std::move(*left);
    left_sums_.erase(left);
    auto& leaf = static_cast<LeafNode&>(*sums.bias.node);
    const GradientTarget target =
        leaf.target(leaf.output_shape(sums.bias.output).get(), {sums.bias.dtype, sums.of.device()});
    sum_into(target.tensor, sums.of, target.accumulate);
    leaf.commit(target.tensor);
    arrive(leaf);
  }
}

}  // namespace lockstep::autograd
