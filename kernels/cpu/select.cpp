#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <iterator>
#include <span>
#include <string_view>
#include <vector>

#include "cpu/loops.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::cpu_kernels {

// The levels of this build, best first; CMake writes the list.
#define LOCKSTEP_CPU_ISA(level) \
  namespace level {             \
  const Loops& table();         \
  }
#include "cpu_isas.def"
#undef LOCKSTEP_CPU_ISA

namespace {

struct Level {
  const char* name;
  const Loops& (*table)();
};

bool machine_has(std::string_view level) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (level == "avx512")
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
  if (level == "avx2")
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
#endif
  return level == "baseline";
}

constexpr Level levels[] = {
#define LOCKSTEP_CPU_ISA(level) {#level, level::table},
#include "cpu_isas.def"
#undef LOCKSTEP_CPU_ISA
};

/// Where a level stands in the list.
std::size_t place_of(std::string_view name) {
  const auto* const found = std::ranges::find(levels, name, &Level::name);
  LOCKSTEP_CHECK(found != std::end(levels), InvalidArgument, "this build has no kernels for ",
                 name);
  return static_cast<std::size_t>(found - std::begin(levels));
}

std::atomic<std::size_t> limit{0};    // the first level that may be chosen
std::atomic<bool> is_chosen = false;  // and in use

Level choose() {
  const char* const wanted = std::getenv("LOCKSTEP_CPU_ISA");
  const bool takes_any = !wanted || !*wanted || [&] {  // a level above the limit is as good as none
    const auto* const named = std::ranges::find(levels, std::string_view(wanted), &Level::name);
    return named < std::begin(levels) + limit && machine_has(wanted);
  }();
  for (const Level& level : std::span(levels).subspan(limit))
    if ((takes_any || std::string_view(wanted) == level.name) && machine_has(level.name))
      return level;
  LOCKSTEP_THROW(InvalidArgument, "LOCKSTEP_CPU_ISA=", wanted ? wanted : "",
                 ": this build or this machine lacks that instruction set; the best of this "
                 "build is ",
                 levels[0].name, ", and baseline always works");
}

const Level& chosen() {
  static const Level level = [] {
    is_chosen = true;
    return choose();
  }();
  return level;
}

}  // namespace

const Loops& loops() {
  static const Loops& table = chosen().table();
  return table;
}

const char* isa_name() { return chosen().name; }

const char* best_isa() { return is_chosen ? isa_name() : choose().name; }

const char* machine_isa() {
  return std::ranges::find_if(levels, [](const Level& level) { return machine_has(level.name); })
      ->name;
}

bool limit_isa(std::string_view name) {
  const std::size_t place = place_of(name);
  limit = std::max(limit.load(), place);
  return !is_chosen || place_of(isa_name()) >= place;
}

std::vector<const char*> compiled_isas() {
  std::vector<const char*> names;
  for (const Level& level : levels) names.push_back(level.name);
  return names;
}

}  // namespace lockstep::cpu_kernels
