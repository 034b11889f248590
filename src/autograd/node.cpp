#include "lockstep/autograd/node.hpp"

#include <atomic>
#include <map>
#include <mutex>
#include <utility>

#include "lockstep/autograd/gradient_hooks.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/macros.hpp"

namespace lockstep::autograd {
namespace {
thread_local std::uint64_t next_sequence = 0;
thread_local GraphTag current_tag = 0;
thread_local PlaceId current_place = 0;
thread_local Node* dead_nodes = nullptr;
thread_local bool deleting = false;

struct ClosedTags {
  std::mutex mutex;
  std::map<GraphTag, std::string> reasons;
};

// Never destroyed: what closes tags may itself be in static storage.
ClosedTags& closed_tags() {
  static ClosedTags& instance = *new ClosedTags();
  return instance;
}
}  // namespace

Node::Node(std::string_view name) noexcept
    : place_(current_place), name_(name), sequence_(next_sequence++), tag_(current_tag) {}

GradientHooks& Node::make_hooks() {
  if (!hooks_) hooks_ = make_intrusive<GradientHooks>().detach();
  return *hooks_;
}

LOCKSTEP_COLD void Node::drop_hooks() noexcept {
  const auto hooks = IntrusivePtr<GradientHooks>::adopt(hooks_);
  hooks->clear();
}

GraphTag new_graph_tag() {
  static std::atomic<GraphTag> last{0};
  const GraphTag tag = ++last;
  LOCKSTEP_CHECK(tag < GraphTag{1} << 31, Unsupported, "2^31 graph tags have been given out");
  return tag;
}

void close_graph_tag(GraphTag tag, std::string reason) {
  ClosedTags& closed = closed_tags();
  const std::lock_guard lock(closed.mutex);
  closed.reasons.insert_or_assign(tag, std::move(reason));
}

void check_open(GraphTag tag) {
  if (tag == 0) return;
  ClosedTags& closed = closed_tags();
  const std::lock_guard lock(closed.mutex);
  const auto found = closed.reasons.find(tag);
  if (found != closed.reasons.end()) LOCKSTEP_THROW(InvalidArgument, found->second);
}

TagGuard::TagGuard(GraphTag tag) noexcept : previous_(std::exchange(current_tag, tag)) {}

TagGuard::~TagGuard() { current_tag = previous_; }

PlaceGuard::PlaceGuard(const Place& place) noexcept
    : previous_(std::exchange(current_place, place.id())) {}

PlaceGuard::~PlaceGuard() { current_place = previous_; }

void Node::destroy() noexcept {
  // Deleting a node, or dropping what its hooks hold, drops other nodes, which come back here:
  // queue them instead of recursing.
  const bool is_nested = std::exchange(deleting, true);
  if (hooks_) [[unlikely]]
    drop_hooks();
  next_dead_ = std::exchange(dead_nodes, this);
  if (is_nested) return;
  while (Node* node = dead_nodes) {
    dead_nodes = node->next_dead_;
    delete node;
  }
  deleting = false;
}

}  // namespace lockstep::autograd
