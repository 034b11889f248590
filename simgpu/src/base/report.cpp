#include "base/report.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <unordered_set>
#include <utility>

#include <unistd.h>

#include "base/options.hpp"

namespace simgpu {
namespace {

constexpr int exit_code = 66;

/// What was reported so far. Never destroyed: reports come until the very end of the process.
struct Reports {
  std::mutex mutex;
  std::unordered_set<std::string> printed;
  std::function<void(const Report&)> sink;
  std::atomic<std::size_t> count{0};
  std::atomic<std::size_t> to_stderr{0};
};

Reports& reports() {
  static Reports* const all = new Reports;
  return *all;
}

void fail_after_findings(int status, void*) {
  if (status != 0 || reports().to_stderr == 0) return;
  const std::size_t found = reports().to_stderr;
  std::fprintf(stderr, "simulated GPU: %zu finding%s\n", found, found == 1 ? "" : "s");
  std::fflush(nullptr);
  ::_exit(exit_code);
}

void print(const Report& report) {
  static const int registered = ::on_exit(fail_after_findings, nullptr);
  static_cast<void>(registered);
  ++reports().to_stderr;
  std::fprintf(stderr, "==== simulated GPU: %s\n%s\n====\n", name(report.finding),
               report.text.c_str());
  std::fflush(stderr);
  if (options().abort_on_finding) std::abort();
}

}  // namespace

const char* name(Finding finding) {
  switch (finding) {
    case Finding::race: return "race";
    case Finding::host_race: return "race with the host";
    case Finding::host_access: return "host access to device memory";
    case Finding::out_of_bounds: return "out of bounds";
    case Finding::misaligned: return "misaligned address";
    case Finding::peer_access: return "no peer access";
    case Finding::use_after_free: return "use after free";
    case Finding::invalid_free: return "invalid free";
    case Finding::uninitialized_read: return "read of uninitialized memory";
    case Finding::shared_memory_race: return "race in shared memory";
    case Finding::global_memory_race: return "race in global memory";
    case Finding::shared_memory_bounds: return "shared memory out of bounds";
    case Finding::index_bounds: return "index out of bounds";
    case Finding::barrier_divergence: return "barrier divergence";
    case Finding::stack_overflow: return "stack overflow";
    case Finding::endless_wait: return "endless wait";
    case Finding::invalid_launch: return "invalid launch";
    case Finding::capture: return "illegal capture";
    case Finding::collective_mismatch: return "collective mismatch";
    case Finding::leak: return "leak";
    case Finding::lost_result: return "result lost";
    case Finding::registration: return "registered buffer";
  }
  return "finding";
}

namespace {

// Kernels that get garbage, or run in part, do what they would not: nothing is found by that.
bool may_come_of_garbage(Finding finding) {
  switch (finding) {
    case Finding::out_of_bounds:
    case Finding::misaligned:
    case Finding::use_after_free:
    case Finding::uninitialized_read:
    case Finding::global_memory_race:
    case Finding::shared_memory_race:
    case Finding::shared_memory_bounds:
    case Finding::index_bounds:
    case Finding::peer_access:
    case Finding::stack_overflow:
    case Finding::endless_wait:
    case Finding::barrier_divergence: return options().execute != Execute::all;
    default: return false;
  }
}

}  // namespace

void report(Finding finding, std::string text) {
  if (may_come_of_garbage(finding)) return;
  Reports& all = reports();
  const std::lock_guard lock(all.mutex);
  ++all.count;
  const Report found{finding, std::move(text)};
  if (all.sink) return all.sink(found);
  if (all.printed.insert(found.text).second) print(found);
}

void note(const std::string& text) {
  if (!options().notes) return;
  std::fprintf(stderr, "---- simulated GPU: note\n%s\n----\n", text.c_str());
}

std::size_t findings() { return reports().count; }

void set_report_sink(std::function<void(const Report&)> sink) {
  Reports& all = reports();
  const std::lock_guard lock(all.mutex);
  all.sink = std::move(sink);
}

}  // namespace simgpu
