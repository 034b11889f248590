#include "planted/suite.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <string>

#include "base/options.hpp"
#include "memory/device_side.hpp"
#include "planted/child.hpp"

namespace planted {
namespace {

constexpr const char* row = "%-34s| %-30s| %-30s| %-8s| %s\n";

std::string joined(std::span<const std::string_view> parts) {
  std::string text;
  for (const std::string_view part : parts) (text += text.empty() ? "" : ", ") += part;
  return text;
}

// `place` may be several, "a|b", of which one is enough.
bool names(const std::string& text, std::string_view place) {
  const std::size_t end = place.find('|');
  return text.find(place.substr(0, end)) != std::string::npos ||
         (end != std::string_view::npos && names(text, place.substr(end + 1)));
}

bool names_all(const std::string& text, std::span<const std::string_view> places) {
  return std::ranges::all_of(places, [&](std::string_view place) { return names(text, place); });
}

// "race x 2" of the kinds that were reported.
std::string kinds_of(const RunResult& result) {
  std::string text;
  for (auto report = result.reports.begin(); report != result.reports.end(); ++report) {
    const auto alike = [&](const PrintedReport& other) { return other.kind == report->kind; };
    if (std::any_of(result.reports.begin(), report, alike)) continue;
    const auto count = std::ranges::count_if(result.reports, alike);
    (text += text.empty() ? "" : ", ") += report->kind;
    if (count > 1) text += " x " + std::to_string(count);
  }
  return text.empty() ? "nothing" : text;
}

// An order that a race allows may use memory before it is written, or after it went, when a shorter
// block may be in its place.
bool may_be_reported(std::string_view kind, const Fault& fault) {
  return kind == fault.kind ||
         (fault.kind == "race" && (kind == "use after free" || kind == "out of bounds" ||
                                   kind == "read of uninitialized memory"));
}

bool is_caught(const Fault& fault, const RunResult& result) {
  const auto names_it = [&](const PrintedReport& report) {
    return report.kind == fault.kind && names_all(report.text, fault.places);
  };
  return std::ranges::any_of(result.reports, names_it) &&
         std::ranges::all_of(result.reports, [&](const PrintedReport& report) {
           return may_be_reported(report.kind, fault);
         });
}

// True if ranks waited so long for each other, or the program took so long, that the run says
// nothing of the fault: on a machine that is busy, or was stopped, work is over limits of time, and
// what is done when the host asks is in order.
bool was_late(const RunResult& result) {
  constexpr std::string_view signs[] = {"has not come", "timed out after", "in time"};
  return result.exit_code == 128 + SIGALRM ||
         std::ranges::any_of(signs, [&](std::string_view sign) {
           return result.output.find(sign) != std::string::npos;
         });
}

// Again where it was late, unless it shows what it should.
template <class Condition>
RunResult run_in_time(const Fault& fault, const RunOptions& options, const Condition& is_right) {
  constexpr int most_runs = 3;
  RunResult result = run_in_child(fault, options);
  for (int runs = 1; runs < most_runs && !is_right(result) && was_late(result); ++runs)
    result = run_in_child(fault, options);
  return result;
}

// The places that no report names, if none names all.
std::string place_of(const Fault& fault, const RunResult& result) {
  const bool named = std::ranges::any_of(result.reports, [&](const PrintedReport& report) {
    return names_all(report.text, fault.places);
  });
  return (named ? "" : "NOT ") + joined(fault.places);
}

// Why a fault cannot be found here; null if it can. A child is asked: the simulated GPU reads its
// settings once, and those of the programs are not made yet.
const char* why_not_here(const Fault& fault) {
  static const bool is_seen =
      holds_in_child([] { return simgpu::host_watch() != simgpu::HostWatch::off; });
  return fault.kind == "race with the host" && !is_seen
             ? "the host's accesses are not watched (LOCKSTEP_SIM_HOST_WATCH=off)"
             : nullptr;
}

template <class Body>
void for_each_fault(std::string_view only, const Body& body) {
  for (const Fault& fault : faults())
    if (only.empty() || fault.name == only) body(fault);
}

// Runs a program without its fault. @return whether nothing was reported.
bool stays_silent(const Fault& fault, const RunOptions& options) {
  const auto is_silent = [](const RunResult& run) {
    return run.exit_code == 0 && run.reports.empty();
  };
  const RunResult result = run_in_time(fault, options, is_silent);
  if (is_silent(result)) return true;
  std::printf("%s without its fault, seed %llu, order %s, ends with %d%s:\n%s\n",
              std::string(fault.name).c_str(), static_cast<unsigned long long>(options.seed),
              options.order.c_str(), result.exit_code, was_late(result) ? ", each time late" : "",
              result.output.c_str());
  return false;
}

}  // namespace

int run_table(std::string_view only) {
  int missed = 0;
  std::printf(row, "planted fault", "expected", "reported", "caught", "the report names");
  for_each_fault(only, [&](const Fault& fault) {
    if (const char* const reason = why_not_here(fault)) {
      std::printf("%-34s| SKIPPED: %s\n", std::string(fault.name).c_str(), reason);
      return;
    }
    RunResult shown;
    bool caught = true;
    for (const char* const order : {"random", "early", "late"}) {
      if (!caught) continue;  // the run that missed it is the one to show
      const auto catches = [&](const RunResult& run) { return is_caught(fault, run); };
      shown = run_in_time(fault, {.with_fault = true, .order = order}, catches);
      caught = catches(shown);
    }
    std::printf(row, std::string(fault.name).c_str(), std::string(fault.kind).c_str(),
                kinds_of(shown).c_str(),
                caught            ? "yes"
                : was_late(shown) ? "NO, LATE"
                                  : "NO",
                place_of(fault, shown).c_str());
    if (!caught) std::printf("%s\n", shown.output.c_str());
    std::fflush(stdout);
    missed += !caught;
  });
  return missed;
}

int run_seeds(std::uint64_t seeds, std::string_view only) {
  using Clock = std::chrono::steady_clock;
  const auto began = Clock::now();
  int runs = 0, failed = 0;
  for_each_fault(only, [&](const Fault& fault) {
    const auto run = [&](const RunOptions& options) {
      ++runs;
      failed += !stays_silent(fault, options);
    };
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) run({.seed = seed});
    run({.order = "early"});
    run({.order = "late"});
  });
  const double seconds = std::chrono::duration<double>(Clock::now() - began).count();
  std::printf("%d runs without faults (seeds 1 to %llu, early, late) in %.1f s: %d reported\n",
              runs, static_cast<unsigned long long>(seeds), seconds, failed);
  return failed;
}

}  // namespace planted
