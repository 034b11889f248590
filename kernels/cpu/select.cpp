#include <cstdlib>
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

Level choose() {
  const char* wanted = std::getenv("LOCKSTEP_CPU_ISA");
  for (const Level& level : levels)
    if ((!wanted || !*wanted || std::string_view(wanted) == level.name) && machine_has(level.name))
      return level;
  LOCKSTEP_THROW(InvalidArgument, "LOCKSTEP_CPU_ISA=", wanted ? wanted : "",
                 ": this build or this machine lacks that instruction set; the best of this "
                 "build is ",
                 levels[0].name, ", and baseline always works");
}

const Level& chosen() {
  static const Level level = choose();
  return level;
}

}  // namespace

const Loops& loops() {
  static const Loops& table = chosen().table();
  return table;
}

const char* isa_name() { return chosen().name; }

std::vector<const char*> compiled_isas() {
  std::vector<const char*> names;
  for (const Level& level : levels) names.push_back(level.name);
  return names;
}

}  // namespace lockstep::cpu_kernels
