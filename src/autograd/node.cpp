#include "lockstep/autograd/node.hpp"

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "lockstep/autograd/gradient_hooks.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/macros.hpp"
#include "memory/place_source.hpp"

namespace lockstep::autograd {
namespace {
thread_local std::uint64_t next_sequence = 0;
thread_local GraphTag current_tag = 0;
thread_local PlaceId current_place = 0;
thread_local Node* dead_nodes = nullptr;
thread_local bool deleting = false;

/// What its owner said of a tag.
struct TagState {
  std::function<void()> begin;
  std::string closed_because;
};

struct TagStates {
  std::mutex mutex;
  std::map<GraphTag, std::shared_ptr<const TagState>> by_tag;
};

// Never destroyed: what closes tags may itself be in static storage.
TagStates& tag_states() {
  static TagStates& instance = *new TagStates();
  return instance;
}

void set_state(GraphTag tag, TagState state) {
  TagStates& states = tag_states();
  auto made = std::make_shared<const TagState>(std::move(state));
  const std::lock_guard lock(states.mutex);
  states.by_tag[tag].swap(made);
}

/// Null for a tag of which nothing was said.
std::shared_ptr<const TagState> state_of(GraphTag tag) {
  if (tag == 0) return nullptr;
  TagStates& states = tag_states();
  const std::lock_guard lock(states.mutex);
  const auto found = states.by_tag.find(tag);
  return found == states.by_tag.end() ? nullptr : found->second;
}

/// Pools name a module with what it allocates.
[[maybe_unused]] const bool places_are_known = [] {
  static constexpr lockstep::detail::PlaceSource source{[]() noexcept { return current_place; },
                                                        path_of};
  lockstep::detail::place_source.store(&source, std::memory_order_release);
  return true;
}();
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

void on_backward_through(GraphTag tag, std::function<void()> begin) {
  set_state(tag, {.begin = std::move(begin), .closed_because = {}});
}

void close_graph_tag(GraphTag tag, std::string reason) {
  set_state(tag, {.begin = {}, .closed_because = std::move(reason)});
}

void check_open(GraphTag tag) {
  const auto state = state_of(tag);
  if (state && !state->closed_because.empty())
    LOCKSTEP_THROW(InvalidArgument, state->closed_because);
}

void begin_backward_through(GraphTag tag) {
  const auto state = state_of(tag);
  if (state && state->begin) state->begin();
}

TagGuard::TagGuard(GraphTag tag) noexcept : previous_(std::exchange(current_tag, tag)) {}

TagGuard::~TagGuard() { current_tag = previous_; }

PlaceId current_place_id() noexcept { return current_place; }

std::string current_path() { return path_of(current_place); }

PlaceGuard::PlaceGuard(PlaceId place) noexcept : previous_(std::exchange(current_place, place)) {}

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
