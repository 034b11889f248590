#include "memory/allocation_tags.hpp"

#include <mutex>
#include <string_view>

#include "lockstep/memory/memory_tag.hpp"
#include "lockstep/observe/trace_range.hpp"
#include "memory/place_source.hpp"

namespace lockstep::detail {
namespace {

struct OpenRange {
  std::string_view name;
  TracePhase phase;
};

thread_local std::vector<OpenRange> open_ranges;

/// Keeps each thread's open ranges.
class RangeStack final : public TraceSink {
 public:
  void begin(std::string_view name, TracePhase phase) noexcept override {
    open_ranges.push_back({name, phase});
  }
  void end() noexcept override { open_ranges.pop_back(); }
  void follow() {
    const std::lock_guard lock(mutex_);
    if (users_++ == 0) add_trace_sink(*this);
  }
  void unfollow() {
    const std::lock_guard lock(mutex_);
    if (--users_ == 0) remove_trace_sink(*this);
  }

 private:
  std::mutex mutex_;
  int users_ = 0;
};

/// For the life of the process: a range may end after the last history.
RangeStack& range_stack() {
  static RangeStack& stack = *new RangeStack;
  return stack;
}

}  // namespace

OpTracing::OpTracing() { range_stack().follow(); }
OpTracing::~OpTracing() { range_stack().unfollow(); }

std::uint32_t AllocationTags::current() {
  Key key{0, false, std::string(memory_tag), {}};
  if (const PlaceSource* source = place_source.load(std::memory_order_acquire))
    key.place = source->current();
  if (!open_ranges.empty()) {
    key.op = open_ranges.back().name;
    key.backward = open_ranges.back().phase == TracePhase::backward;
    // Backward runs ops of its own: it is the node's that counts.
    for (const OpenRange& range : open_ranges)
      if (range.phase == TracePhase::backward) key.op = range.name, key.backward = true;
  }
  if (key == Key{}) return 0;
  const auto [at, is_new] = numbers_.try_emplace(key, static_cast<std::uint32_t>(texts_.size()));
  if (is_new) texts_.push_back(text_of(key));
  return at->second;
}

std::string AllocationTags::text_of(const Key& key) {
  std::string text = key.scope;
  const PlaceSource* source = place_source.load(std::memory_order_acquire);
  const auto append = [&](const std::string& part) {
    if (!text.empty() && !part.empty()) text += ": ";
    text += part;
  };
  if (source && key.place != 0) append(source->path(key.place));
  append(key.op);
  if (key.backward) text += " backward";
  return text;
}

}  // namespace lockstep::detail
