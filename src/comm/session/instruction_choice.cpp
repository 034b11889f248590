#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "comm/session/device_choice.hpp"
#include "cpu/library_isa.hpp"
#include "cpu/loops.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/observe/log.hpp"

namespace lockstep::comm {
namespace {

// "avx512 on rank 0 (host a), baseline on rank 3 (host b)"
std::string describe(const std::vector<std::string>& of_ranks, const Bootstrap& bootstrap) {
  std::string text;
  for (const std::string_view isa : cpu_kernels::compiled_isas()) {
    const auto first = std::ranges::find(of_ranks, isa);
    if (first == of_ranks.end()) continue;
    const auto rank = static_cast<std::size_t>(first - of_ranks.begin());
    text += detail::concat(text.empty() ? "" : ", ", isa, " on rank ", rank, " (host ",
                           bootstrap.peers()[rank].host, ")");
  }
  return text;
}

bool are_alike(const std::vector<std::string>& texts) {
  return std::ranges::adjacent_find(texts, std::ranges::not_equal_to()) == texts.end();
}

/// What the variable asks for: each rank's may be another.
void warn_of_other_backends(const std::vector<std::string>& of_ranks) {
  const auto other = std::ranges::adjacent_find(of_ranks, std::ranges::not_equal_to());
  if (other == of_ranks.end()) return;
  LOCKSTEP_LOG(warning, "LOCKSTEP_CPU_BACKEND is ", *other, " on rank ", other - of_ranks.begin(),
               " and ", *std::next(other), " on rank ", other - of_ranks.begin() + 1,
               "; replicas may drift apart by roundings: give all ranks the same");
}

using cpu_kernels::LibraryIsa;

/// What a rank tells of itself.
struct Instructions {
  std::string used, machine, backend;
  LibraryIsa library = {};
};

std::string in_lines(const Instructions& own) {
  return detail::concat(own.used, '\n', own.machine, '\n', own.backend, '\n',
                        static_cast<int>(own.library));
}

Instructions of_lines(const std::string& text) {
  Instructions told;
  int library = 0;
  lockstep::detail::TextReader(text) >> told.used >> told.machine >> told.backend >> library;
  told.library = static_cast<LibraryIsa>(library);
  return told;
}

/// Has oneDNN use what all ranks have. @param isas of the ranks
void limit_library(int rank, const std::vector<LibraryIsa>& isas) {
  const auto [least, best] = std::ranges::minmax(isas);
  if (least == best) return;
  const char* const name = cpu_kernels::name_of(least);
  if (rank == 0)
    LOCKSTEP_LOG(warning,
                 "oneDNN would compute with other instruction sets on other ranks, by their "
                 "processors or by ONEDNN_MAX_CPU_ISA: from ",
                 name, " to ", cpu_kernels::name_of(best), "; all use ", name,
                 ", so that replicas stay equal");
  if (!cpu_kernels::limit_library_isa(least))
    LOCKSTEP_LOG(warning, "rank ", rank,
                 " has computed by oneDNN before the Session began, and goes on as it did: "
                 "replicas drift apart by roundings; make the Session first, or give all ranks "
                 "ONEDNN_MAX_CPU_ISA=",
                 name);
}

}  // namespace

void choose_instructions(Bootstrap& bootstrap) {
  const char* const wanted = std::getenv("LOCKSTEP_CPU_BACKEND");
  const Instructions own{.used = cpu_kernels::best_isa(),
                         .machine = cpu_kernels::machine_isa(),
                         .backend = wanted && *wanted ? wanted : "onednn",  // the usual one
                         .library = cpu_kernels::library_isa()};
  std::vector<std::string> used, machines, backends;
  std::vector<LibraryIsa> libraries;
  for (const std::string& each : bootstrap.all_gather_bytes(in_lines(own), "instruction sets")) {
    const Instructions told = of_lines(each);
    used.push_back(told.used);
    machines.push_back(told.machine);
    backends.push_back(told.backend);
    libraries.push_back(told.library);
  }
  if (bootstrap.rank() == 0) warn_of_other_backends(backends);
  const auto isas = cpu_kernels::compiled_isas();
  const auto place_of = [&](const std::string& isa) { return std::ranges::find(isas, isa); };
  const std::string& least = *std::ranges::max_element(used, {}, place_of);
  if (!are_alike(used) || !are_alike(machines)) {
    const bool is_limited = cpu_kernels::limit_isa(least);
    if (bootstrap.rank() == 0 && !are_alike(used))
      LOCKSTEP_LOG(warning,
                   "ranks have different instruction sets, by their processors or by "
                   "LOCKSTEP_CPU_ISA: ",
                   describe(used, bootstrap), "; all compute with ", least,
                   ", so that replicas stay equal");
    if (!is_limited)
      LOCKSTEP_LOG(warning, "rank ", bootstrap.rank(),
                   " has computed before the Session began, with ", cpu_kernels::isa_name(),
                   ", and goes on so: replicas drift apart by roundings; "
                   "make the Session first, or give all ranks LOCKSTEP_CPU_ISA=",
                   least);
  }
  if (own.backend == "onednn") limit_library(bootstrap.rank(), libraries);
}

}  // namespace lockstep::comm
