#include "kernels/global_race.hpp"

#include <set>
#include <string>

#include "base/options.hpp"
#include "kernels/kernel_findings.hpp"
#include "kernels/watching.hpp"
#include "memory/address_space.hpp"

namespace simgpu {
namespace {

std::string who(const GlobalRace::Side& side) {
  return "block " + text_of(side.block) + ", thread " + text_of_thread(side.thread);
}

std::string line_of(const char* order, const GlobalRace::Side& side) {
  return std::string("\n  ") + order + who(side) + " " + side.does + " it\n      at " +
         text_of_place(side.place);
}

std::string missing_in(const GlobalRace& race) {
  using Missing = GlobalRace::Missing;
  switch (race.missing) {
    case Missing::barrier:
      return "missing barrier: nothing orders two threads of a block but __syncthreads, or "
             "__syncwarp within a warp";
    case Missing::atomic:
      return "missing atomic: both read it and write it, so that what one adds is lost: atomicAdd "
             "or the like";
    case Missing::wider_atomic:
      return "missing scope: functions that end in _block are atomic for the threads of one block "
             "only";
    case Missing::order:
      return "missing order: nothing orders the blocks of a launch: memory of its own for each "
             "block, atomicAdd or the like, or a second launch";
    case Missing::releasing_fence:
      return "missing fence: __threadfence() between what the first block does here and the atomic "
             "operation by which it tells the second";
    case Missing::acquiring_fence:
      return "missing fence: __threadfence() between the atomic operation by which the second "
             "block "
             "learns of the first and what it reads here";
  }
  return "";
}

/// The first of the two, as the second sees it.
std::string former_of(const GlobalRace& race) {
  const std::string block = text_of(race.first.block);
  const bool is_same = block == text_of(race.second.block);
  return (is_same ? "" : "block " + block + ", ") + "thread " + text_of_thread(race.first.thread);
}

std::string words_of(const GlobalRace& race) {
  return std::string(race.second.does) + " " + std::to_string(race.bytes) + " bytes that " +
         former_of(race) + " " + race.first.does + " too" + line_of("first   ", race.first) +
         line_of("second  ", race.second) + "\n  " + missing_in(race) + "\n  memory  " +
         describe_address(race.data);
}

}  // namespace

void report_race(const GlobalRace& race) {
  const WatchScope off(nullptr);
  static auto& reported = *new std::set<std::string>;  // for kernels that run at exit, too
  if (!reported.insert(running_kernel() + running_site()).second) return;
  found_at(Finding::global_memory_race, race.second.block, race.second.thread, words_of(race));
}

void note_same_value(const GlobalRace& race) {
  if (!options().notes) return;
  const WatchScope off(nullptr);
  static auto& told = *new std::set<std::string>;
  if (!told.insert(running_kernel() + running_site()).second) return;
  note(running_kernel() + ": the same value stored by many threads" +
       line_of("first   ", race.first) + line_of("second  ", race.second) + "\n  memory  " +
       describe_address(race.data) + "\n" + running_site());
}

}  // namespace simgpu
