#include "lockstep/autograd/reachable.hpp"

#include <vector>

namespace lockstep::autograd {

std::unordered_set<const LeafNode*> reachable_leaves(std::span<const Tensor> outputs) {
  std::unordered_set<const LeafNode*> leaves;
  std::unordered_set<const Node*> seen;
  std::vector<Node*> stack;
  const auto visit = [&](Node* node) {
    if (!node) return;
    if (node->is_leaf())
      leaves.insert(static_cast<const LeafNode*>(node));
    else if (seen.insert(node).second)
      stack.push_back(node);
  };
  for (const Tensor& output : outputs)
    if (output.requires_grad()) visit(node_of(output).get());
  while (!stack.empty()) {
    Node* node = stack.back();
    stack.pop_back();
    for (const Edge& edge : node->edges()) visit(edge.node.get());
  }
  return leaves;
}

}  // namespace lockstep::autograd
