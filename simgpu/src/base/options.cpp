#include "base/options.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "base/faults.hpp"
#include "base/launcher.hpp"

namespace simgpu {
namespace {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

[[noreturn]] void refuse_option(const std::string& name, const std::string& value,
                                const std::string& right) {
  throw std::invalid_argument(name + "=" + value + " means nothing: " + right);
}

std::uint64_t number(const char* name, std::uint64_t otherwise, std::uint64_t most) {
  const std::string text = variable(name);
  if (text.empty()) return otherwise;
  char* end = nullptr;
  const std::uint64_t value = std::strtoull(text.c_str(), &end, 10);
  if (*end != '\0' || text[0] == '-' || value > most)
    refuse_option(name, text, "a whole number from 0 to " + std::to_string(most) + " is wanted");
  return value;
}

// One for each of this host's ranks, if a launcher says how many there are.
std::uint64_t default_devices() {
  return static_cast<std::uint64_t>(std::clamp(launcher_counts().local_ranks, 1, 16));
}

Order wanted_order() {
  const std::string text = variable("LOCKSTEP_SIM_ORDER");
  if (text.empty() || text == "random") return Order::random;
  if (text == "early") return Order::early;
  if (text == "late") return Order::late;
  refuse_option("LOCKSTEP_SIM_ORDER", text, "random, early or late is wanted");
}

HostWatch wanted_host_watch() {
  const std::string text = variable("LOCKSTEP_SIM_HOST_WATCH");
  if (text.empty() || text == "keys") return HostWatch::keys;
  if (text == "pages") return HostWatch::pages;
  if (text == "off") return HostWatch::off;
  refuse_option("LOCKSTEP_SIM_HOST_WATCH", text, "keys, pages or off is wanted");
}

Execute wanted_execute() {
  const std::string text = variable("LOCKSTEP_SIM_EXECUTE");
  if (text.empty() || text == "all") return Execute::all;
  if (text == "sample") return Execute::sample;
  if (text == "none") return Execute::none;
  refuse_option("LOCKSTEP_SIM_EXECUTE", text, "all, sample or none is wanted");
}

// False for the first word or nothing, true for the second.
bool chosen(const char* name, const std::string& usual, const std::string& other) {
  const std::string text = variable(name);
  if (text.empty() || text == usual) return false;
  if (text == other) return true;
  refuse_option(name, text, usual + " or " + other + " is wanted");
}

}  // namespace

Options Options::from_environment() {
  constexpr std::uint64_t any = UINT64_MAX;
  Options read;
  read.devices = static_cast<int>(number("LOCKSTEP_SIM_DEVICES", default_devices(), 16));
  read.memory = number("LOCKSTEP_SIM_MEMORY", read.memory, std::uint64_t{1} << 40);
  read.seed = number("LOCKSTEP_SIM_SEED", 0, any);
  read.order = wanted_order();
  read.abort_on_finding = chosen("LOCKSTEP_SIM_ON_FINDING", "report", "abort");
  read.host_threads_apart = chosen("LOCKSTEP_SIM_HOST_THREADS", "together", "apart");
  read.host_watch = wanted_host_watch();
  read.report_leaks = number("LOCKSTEP_SIM_LEAKS", 0, 1) != 0;
  read.keepers = variable("LOCKSTEP_SIM_KEEP");
  read.watch_kernels = number("LOCKSTEP_SIM_WATCH", 1, 1) != 0;
  read.notes = number("LOCKSTEP_SIM_NOTES", 0, 1) != 0;
  read.host_waits = number("LOCKSTEP_SIM_HOST_WAITS", 0, 1) != 0;
  read.coverage = variable("LOCKSTEP_SIM_COVERAGE");
  read.profile = variable("LOCKSTEP_SIM_PROFILE");
  read.execute = wanted_execute();
  read.faults = variable("LOCKSTEP_SIM_FAULT");
  Faults().add(read.faults);
  return read;
}

const Options& options() {
  static const Options read = [] {
    try {
      return Options::from_environment();
    } catch (const std::invalid_argument& error) {
      std::fprintf(stderr, "simulated GPU: %s\n", error.what());
      std::exit(2);
    }
  }();
  return read;
}

}  // namespace simgpu
