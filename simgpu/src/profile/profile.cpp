#include "profile/profile.hpp"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/launcher.hpp"
#include "base/options.hpp"
#include "lockstep/observe/trace_range.hpp"

namespace simgpu::profile {
namespace {

using Clock = std::chrono::steady_clock;

/// "profile.jsonl" of rank 0, and "profile.3.jsonl" of rank 3.
std::string path_of_rank(std::string path, int rank) {
  if (rank == 0) return path;
  const std::size_t slash = path.rfind('/'), dot = path.rfind('.');
  const bool has_extension =
      dot != std::string::npos && (slash == std::string::npos || dot > slash);
  path.insert(has_extension ? dot : path.size(), '.' + std::to_string(rank));
  return path;
}

/// The file, which is never closed: the program may end at any moment, and each line is whole.
class File {
 public:
  File() {
    const LauncherCounts launched = launcher_counts();
    const std::string path = path_of_rank(options().profile, launched.rank);
    file_ = std::fopen(path.c_str(), "we");
    if (file_ == nullptr) {
      std::fprintf(stderr, "simulated GPU: LOCKSTEP_SIM_PROFILE=%s cannot be written: %s\n",
                   path.c_str(), std::strerror(errno));
      std::exit(2);
    }
    Fields first;
    first.add("profile", 1)
        .add("program", program_invocation_short_name)
        .add("rank", launched.rank)
        .add("ranks", std::max(launched.ranks, 1));
    write_line(first);
  }

  void write_line(const Fields& fields) {
    const std::string line = '{' + fields.text() + "}\n";
    std::fwrite(line.data(), 1, line.size(), file_);
    std::fflush(file_);
  }

  /// The first line of a place, made readable once.
  const std::string& describe(const CallSite& site) {
    std::vector<void*> frames(site.frames.begin(),
                              site.frames.begin() + static_cast<std::ptrdiff_t>(site.count));
    const auto [known, is_new] = places_.try_emplace(std::move(frames));
    if (is_new) {
      const std::string whole = simgpu::describe(site);
      known->second = whole.substr(0, whole.find('\n'));
    }
    return known->second;
  }

  std::mutex mutex;

 private:
  std::FILE* file_;
  std::map<std::vector<void*>, std::string> places_;
};

File& file() {
  static File* const made = new File;
  return *made;
}

Clock::time_point start() {
  static const Clock::time_point first = Clock::now();
  return first;
}

std::atomic<std::uint64_t> ids{0};
std::atomic<int> threads{0};

thread_local int thread_number = -1;
thread_local int depth = 0;       // of simulated calls
thread_local bool polls = false;  // the last call was answered "not ready"
thread_local int polls_in_row = 0;
thread_local Clock::time_point left;  // the last call
thread_local std::vector<std::string> ranges;
thread_local Clock::time_point entered;
thread_local Clock::duration simulated{0};

class RangeSink final : public lockstep::TraceSink {
 public:
  void begin(std::string_view name, lockstep::TracePhase phase) noexcept override {
    ranges.emplace_back(name);
    if (phase == lockstep::TracePhase::backward) ranges.back() += " backward";
    if (name == "step") write_now(Fields().add("kind", "mark").add("name", name));
  }
  void end() noexcept override {
    if (ranges.empty()) return;
    if (ranges.back() == "step") write_now(Fields().add("kind", "mark").add("name", "end of step"));
    ranges.pop_back();
  }
};

}  // namespace

bool is_on() noexcept { return !options().profile.empty(); }

void begin() {
  if (!is_on()) return;
  file();
  lockstep::add_trace_sink(*new RangeSink);  // for the life of the process
}

void begin_range(std::string_view name) {
  if (!is_on()) return;
  if (ranges.empty()) write_now(Fields().add("kind", "mark").add("name", name));
  ranges.emplace_back(name);
}

void end_range() {
  if (!is_on() || ranges.empty()) return;
  const std::string name = std::move(ranges.back());
  ranges.pop_back();
  if (ranges.empty()) write_now(Fields().add("kind", "mark").add("name", "end of " + name));
}

void HostClockPause::enter() noexcept {
  start();
  if (depth++ > 0) return;
  entered = Clock::now();
  if (std::exchange(polls, false)) simulated += entered - left;
}

void HostClockPause::leave() noexcept {
  if (--depth > 0) return;
  left = Clock::now();
  simulated += left - entered;
}

void answered_not_ready() noexcept {
  polls = is_on();
  ++polls_in_row;
}

int take_polls() noexcept { return std::exchange(polls_in_row, 0); }

Origin ask() {
  if (thread_number < 0) thread_number = threads++;
  const Clock::time_point first = start(), now = depth > 0 ? entered : Clock::now();
  return {.id = ++ids,
          .host_us = std::chrono::duration<double, std::micro>(now - first - simulated).count(),
          .thread = thread_number,
          .op = ranges.empty() ? std::string() : ranges.back()};
}

void write(const Origin& origin, const CallSite& site, const Fields& fields) {
  File& to = file();
  const std::lock_guard lock(to.mutex);
  Fields all;
  all.add("id", origin.id).append(fields);
  if (!origin.op.empty()) all.add("op", origin.op);
  all.add("site", to.describe(site)).add("thread", origin.thread).add("host_us", origin.host_us);
  to.write_line(all);
}

void write_now(const Fields& fields) {
  const HostClockPause call;
  write(ask(), CallSite::here(), fields);
}

}  // namespace simgpu::profile
