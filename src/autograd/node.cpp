#include "lockstep/autograd/node.hpp"

#include <atomic>
#include <utility>

#include "lockstep/autograd/gradient_hooks.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::autograd {
namespace {
thread_local std::uint64_t next_sequence = 0;
thread_local GraphTag current_tag = 0;
thread_local PlaceId current_place = 0;
thread_local Node* dead_nodes = nullptr;
thread_local bool burying = false;
}  // namespace

Node::Node(std::string_view name) noexcept
    : place_(current_place), name_(name), sequence_(next_sequence++), tag_(current_tag) {}

const std::shared_ptr<GradientHooks>& Node::make_hooks() {
  if (!hooks_) hooks_ = std::make_shared<GradientHooks>();
  return hooks_;
}

GraphTag new_graph_tag() {
  static std::atomic<GraphTag> last{0};
  const GraphTag tag = ++last;
  LOCKSTEP_CHECK(tag < GraphTag{1} << 31, Unsupported, "2^31 graph tags have been given out");
  return tag;
}

TagGuard::TagGuard(GraphTag tag) noexcept : previous_(std::exchange(current_tag, tag)) {}

TagGuard::~TagGuard() { current_tag = previous_; }

PlaceGuard::PlaceGuard(const Place& place) noexcept
    : previous_(std::exchange(current_place, place.id())) {}

PlaceGuard::~PlaceGuard() { current_place = previous_; }

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
