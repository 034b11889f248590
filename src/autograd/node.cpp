#include "lockstep/autograd/node.hpp"

#include <utility>

namespace lockstep::autograd {
namespace {
thread_local std::uint64_t next_sequence = 0;
thread_local Node* dead_nodes = nullptr;
thread_local bool burying = false;
}  // namespace

Node::Node(std::string_view name) noexcept : name_(name), sequence_(next_sequence++) {}

void Node::destroy() noexcept {
  // Deleting a node drops its operands' nodes, which come back here: queue them instead of
  // recursing.
  next_dead_ = std::exchange(dead_nodes, this);
  if (std::exchange(burying, true)) return;
  while (Node* node = dead_nodes) {
    dead_nodes = node->next_dead_;
    delete node;
  }
  burying = false;
}

}  // namespace lockstep::autograd
