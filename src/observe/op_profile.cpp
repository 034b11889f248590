#include "lockstep/observe/op_profile.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;

double milliseconds(nanoseconds time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

std::string line(const std::string& op, const char* phase, std::int64_t calls, nanoseconds own,
                 nanoseconds total, double share) {
  char text[160];
  std::snprintf(text, sizeof text, "%-34.34s %-8s %9lld %11.3f %6.1f %11.3f\n", op.c_str(), phase,
                static_cast<long long>(calls), milliseconds(own), share, milliseconds(total));
  return text;
}

}  // namespace

/// Of one profile after the other, for the life of the process: ranges that began with one may end
/// after that.
class OpProfile::Sink final : public TraceSink {
 public:
  void begin(std::string_view name, TracePhase phase) noexcept override {
    if (is_over_) return;
    open_.ranges.push_back({this, profile_, name, phase, Clock::now(), nanoseconds(0)});
  }
  void end() noexcept override {
    if (is_over_) return;
    const Clock::time_point now = Clock::now();
    std::vector<Open>& open = open_.ranges;
    // The innermost one of this profile: others may listen to the same ranges.
    const auto range = std::find_if(open.rbegin(), open.rend(),
                                    [this](const Open& each) { return each.sink == this; });
    const nanoseconds total = now - range->began;
    const auto around = std::find_if(std::next(range), open.rend(),
                                     [this](const Open& each) { return each.sink == this; });
    if (around != open.rend()) around->within += total;
    if (range->profile == profile_) add(range->name, range->phase, total, total - range->within);
    open.erase(std::next(range).base());
  }

  std::vector<OpTime> times() const {
    const std::lock_guard lock(mutex_);
    std::vector<OpTime> all;
    for (const auto& [key, time] : times_) all.push_back(time);
    return all;
  }
  void reset() {
    const std::lock_guard lock(mutex_);
    times_.clear();
  }

  /// One that no profile uses.
  static Sink& take() {
    const std::lock_guard lock(unused_mutex());
    if (unused().empty()) return *new Sink;
    Sink& sink = *unused().back();
    unused().pop_back();
    return sink;
  }
  void give_back() {
    ++profile_;
    reset();
    const std::lock_guard lock(unused_mutex());
    unused().push_back(this);
  }

 private:
  static std::mutex& unused_mutex() {
    static std::mutex& mutex = *new std::mutex;
    return mutex;
  }
  static std::vector<Sink*>& unused() {
    static auto& sinks = *new std::vector<Sink*>;
    return sinks;
  }
  struct Open {
    const Sink* sink;
    std::uint64_t profile;
    std::string_view name;
    TracePhase phase;
    Clock::time_point began;
    nanoseconds within;
  };

  void add(std::string_view name, TracePhase phase, nanoseconds total, nanoseconds own) noexcept {
    const std::lock_guard lock(mutex_);
    auto found = times_.find(std::pair(name, phase));
    if (found == times_.end())
      found =
          times_.try_emplace({std::string(name), phase}, OpTime{std::string(name), phase}).first;
    OpTime& time = found->second;
    ++time.calls;
    time.total += total;
    time.own += own;
  }

  struct Less {
    using is_transparent = void;
    template <class A, class B>
    bool operator()(const A& a, const B& b) const {
      const std::string_view x = a.first, y = b.first;
      return x != y ? x < y : a.second < b.second;
    }
  };

  struct OpenRanges {
    std::vector<Open> ranges;
    ~OpenRanges() { is_over_ = true; }
  };
  static thread_local OpenRanges open_;
  // What ends after a thread's variables, as destructors of statics do, has nowhere to be noted.
  static thread_local bool is_over_;
  std::atomic<std::uint64_t> profile_{0};  // the number of it
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, TracePhase>, OpTime, Less> times_;
};

thread_local OpProfile::Sink::OpenRanges OpProfile::Sink::open_;
constinit thread_local bool OpProfile::Sink::is_over_ = false;

OpProfile::OpProfile() : sink_(Sink::take()) { add_trace_sink(sink_); }

OpProfile::~OpProfile() {
  remove_trace_sink(sink_);
  sink_.give_back();
}

void OpProfile::reset() { sink_.reset(); }

std::vector<OpTime> OpProfile::times() const {
  std::vector<OpTime> times = sink_.times();
  std::ranges::stable_sort(times, std::greater(), &OpTime::own);
  return times;
}

std::string OpProfile::table(std::size_t rows) const {
  const std::vector<OpTime> all = times();
  nanoseconds sum{0};
  std::int64_t calls = 0;
  for (const OpTime& each : all) sum += each.own, calls += each.calls;
  char head[160];
  std::snprintf(head, sizeof head, "%-34s %-8s %9s %11s %6s %11s\n", "op", "phase", "calls",
                "own ms", "%", "total ms");
  std::string text = head;
  for (std::size_t i = 0; i < std::min(rows, all.size()); ++i) {
    const auto& [op, phase, count, total, own] = all[i];
    text += line(op, phase == TracePhase::backward ? "backward" : "forward", count, own, total,
                 100.0 * milliseconds(own) / std::max(milliseconds(sum), 1e-9));
  }
  if (rows < all.size()) text += "and " + std::to_string(all.size() - rows) + " more\n";
  return text + line("all", "", calls, sum, sum, 100.0);
}

}  // namespace lockstep
