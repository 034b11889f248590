#include "lockstep/autograd/node.hpp"

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

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

/// What their owners said of tags.
struct TagStates {
  using Begin = std::shared_ptr<const std::function<void()>>;
  std::mutex mutex;
  std::map<GraphTag, Begin> begins;
  /// By reason: which tags are closed, for ever, since ops with them may live as long.
  std::map<std::string, std::vector<bool>> closed;
};

// Never destroyed: what closes tags may itself be in static storage.
TagStates& tag_states() {
  static TagStates& instance = *new TagStates();
  return instance;
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
  TagStates& states = tag_states();
  TagStates::Begin made;  // then what was there, which ends without the lock
  if (begin) made = std::make_shared<const std::function<void()>>(std::move(begin));
  const std::lock_guard lock(states.mutex);
  TagStates::Begin& begin_now = states.begins[tag];
  begin_now.swap(made);
  if (!begin_now) states.begins.erase(tag);
}

void close_graph_tag(GraphTag tag, std::string reason) {
  on_backward_through(tag, nullptr);
  TagStates& states = tag_states();
  const std::lock_guard lock(states.mutex);
  std::vector<bool>& closed = states.closed[std::move(reason)];
  if (closed.size() <= tag) closed.resize(tag + std::size_t{1});
  closed[tag] = true;
}

void check_open(GraphTag tag) {
  TagStates& states = tag_states();
  const std::lock_guard lock(states.mutex);
  for (const auto& [reason, closed] : states.closed)
    LOCKSTEP_CHECK(tag >= closed.size() || !closed[tag], InvalidArgument, reason);
}

void begin_backward_through(GraphTag tag) {
  TagStates& states = tag_states();
  TagStates::Begin begin;
  {
    const std::lock_guard lock(states.mutex);
    if (const auto found = states.begins.find(tag); found != states.begins.end())
      begin = found->second;
  }
  if (begin) (*begin)();
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
