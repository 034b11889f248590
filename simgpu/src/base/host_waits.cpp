#include "base/host_waits.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/call_site.hpp"
#include "base/options.hpp"
#include "simgpu/simgpu.hpp"

namespace simgpu {

/// Waits by call and place.
struct HostWaits::Record {
  using Place = std::pair<const char*, std::vector<void*>>;
  std::map<Place, std::size_t> counts;
};

namespace {

struct Records {
  std::atomic<bool> any{false};
  std::mutex mutex;
  std::vector<HostWaits::Record*> all;
};

Records& records() {
  static Records* const made = new Records;
  return *made;
}

const HostWaits* of_process = nullptr;  // made by the first call of the program

}  // namespace

void note_host_wait(const char* call) {
  Records& counting = records();
  if (!counting.any.load(std::memory_order_acquire)) return;
  const CallSite site = CallSite::here();
  const HostWaits::Record::Place place{
      call, {site.frames.begin(), site.frames.begin() + static_cast<std::ptrdiff_t>(site.count)}};
  const std::lock_guard lock(counting.mutex);
  for (HostWaits::Record* record : counting.all) ++record->counts[place];
}

HostWaits::HostWaits() : record_(std::make_unique<Record>()) {
  const std::lock_guard lock(records().mutex);
  records().all.push_back(record_.get());
  records().any = true;
}

HostWaits::~HostWaits() {
  const std::lock_guard lock(records().mutex);
  std::erase(records().all, record_.get());
  records().any = !records().all.empty();
}

std::size_t HostWaits::count() const {
  const std::lock_guard lock(records().mutex);
  std::size_t sum = 0;
  for (const auto& [place, count] : record_->counts) sum += count;
  return sum;
}

std::string HostWaits::describe() const {
  std::map<std::string, std::size_t> lines;
  const std::lock_guard lock(records().mutex);
  for (const auto& [place, count] : record_->counts) {
    CallSite site;
    site.count = place.second.size();
    std::copy(place.second.begin(), place.second.end(), site.frames.begin());
    lines[std::string(place.first) + " at " + simgpu::describe(site)] += count;
  }
  std::string text;
  for (const auto& [line, count] : lines)
    text += "  " + std::to_string(count) + " x " + line + '\n';
  return text;
}

void begin_host_waits() {
  if (options().host_waits) of_process = new HostWaits;
}

void report_host_waits() {
  if (!of_process) return;
  std::fprintf(stderr,
               "==== simulated GPU: %zu host waits, %zu kernels and %zu graphs launched\n%s====\n",
               of_process->count(), launches(), graph_launches(), of_process->describe().c_str());
}

}  // namespace simgpu
