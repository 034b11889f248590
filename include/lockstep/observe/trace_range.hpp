#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

/// @file
/// Named ranges of the calling thread's time: every op and every node of a backward opens one.

namespace lockstep {

/// What a range covers.
enum class TracePhase : std::uint8_t { forward, backward };

/// Receives ranges, from any thread; ranges of one thread nest.
class TraceSink {
 public:
  virtual ~TraceSink() = default;
  /// A range begins. `name` lives at least until it ends.
  virtual void begin(std::string_view name, TracePhase phase) noexcept = 0;
  /// The thread's innermost open range ends.
  virtual void end() noexcept = 0;
};

namespace detail {

/// Those that listen together.
struct TraceSinks {
  std::vector<TraceSink*> sinks;
  const TraceSinks* before;  // of all that ever did: ranges may be open that began with them
};
inline std::mutex trace_sinks_mutex;
inline const TraceSinks* last_trace_sinks = nullptr;
/// Null where nobody listens.
inline std::atomic<const TraceSinks*> trace_sinks{nullptr};

template <class Change>
void change_trace_sinks(const Change& change) {
  const std::lock_guard lock(trace_sinks_mutex);
  std::vector<TraceSink*> sinks;
  if (const TraceSinks* const now = trace_sinks.load(std::memory_order_relaxed)) sinks = now->sinks;
  change(sinks);
  const TraceSinks* next = last_trace_sinks;  // an equal list is taken again
  while (next && next->sinks != sinks) next = next->before;
  if (!next && !sinks.empty())
    next = last_trace_sinks = new TraceSinks{std::move(sinks), last_trace_sinks};
  trace_sinks.store(next, std::memory_order_release);
}

}  // namespace detail

/// Sends ranges that begin from now on to `sink` too, behind those that listen already. It must
/// outlive them, also where it is removed meanwhile. Any thread may call it.
inline void add_trace_sink(TraceSink& sink) {
  detail::change_trace_sinks([&](std::vector<TraceSink*>& sinks) { sinks.push_back(&sink); });
}
/// Ends that for ranges that begin from now on; without effect for one that does not listen. Of a
/// sink that was added several times the last time is taken back.
inline void remove_trace_sink(TraceSink& sink) {
  detail::change_trace_sinks([&](std::vector<TraceSink*>& sinks) {
    for (std::size_t i = sinks.size(); i > 0; --i)
      if (sinks[i - 1] == &sink) {
        sinks.erase(sinks.begin() + static_cast<std::ptrdiff_t>(i - 1));
        return;
      }
  });
}

/// A range from construction to destruction. Costs one load where nobody listens.
class TraceRange {
 public:
  /// Opens the range.
  explicit TraceRange(std::string_view name, TracePhase phase = TracePhase::forward) noexcept
      : sinks_(detail::trace_sinks.load(std::memory_order_acquire)) {
    if (sinks_) [[unlikely]]
      for (TraceSink* sink : sinks_->sinks) sink->begin(name, phase);
  }
  TraceRange(const TraceRange&) = delete;
  TraceRange& operator=(const TraceRange&) = delete;
  ~TraceRange() {
    if (sinks_) [[unlikely]]
      for (TraceSink* sink : sinks_->sinks) sink->end();
  }

 private:
  const detail::TraceSinks* sinks_;
};

}  // namespace lockstep
