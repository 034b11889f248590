#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

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
inline std::atomic<TraceSink*> trace_sink{nullptr};
}

/// Sends ranges that begin from now on to `sink`, which must outlive them; null stops that.
/// Returns the former sink.
inline TraceSink* set_trace_sink(TraceSink* sink) noexcept {
  return detail::trace_sink.exchange(sink, std::memory_order_acq_rel);
}

/// A range from construction to destruction. Costs one load where nobody listens.
class TraceRange {
 public:
  /// Opens the range.
  explicit TraceRange(std::string_view name, TracePhase phase = TracePhase::forward) noexcept
      : sink_(detail::trace_sink.load(std::memory_order_acquire)) {
    if (sink_) [[unlikely]]
      sink_->begin(name, phase);
  }
  TraceRange(const TraceRange&) = delete;
  TraceRange& operator=(const TraceRange&) = delete;
  ~TraceRange() {
    if (sink_) [[unlikely]]
      sink_->end();
  }

 private:
  TraceSink* sink_;
};

}  // namespace lockstep
