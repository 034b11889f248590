#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "comm/session/device_choice.hpp"
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

}  // namespace

void choose_instructions(Bootstrap& bootstrap) {
  const char* const wanted = std::getenv("LOCKSTEP_CPU_BACKEND");
  const std::string backend = wanted && *wanted ? wanted : "onednn";  // the usual one
  const std::string own = detail::concat(cpu_kernels::best_isa(), ' ', cpu_kernels::machine_isa());
  auto told = bootstrap.all_gather_bytes(detail::concat(own, '\n', backend), "instruction sets");
  std::vector<std::string> backends;
  for (std::string& each : told) {
    backends.push_back(each.substr(each.find('\n') + 1));
    each.resize(each.find('\n'));
  }
  if (bootstrap.rank() == 0) warn_of_other_backends(backends);
  if (are_alike(told)) return;
  std::vector<std::string> of_ranks;
  for (const std::string& each : told) of_ranks.push_back(each.substr(0, each.find(' ')));
  const auto isas = cpu_kernels::compiled_isas();
  const auto place_of = [&](const std::string& isa) { return std::ranges::find(isas, isa); };
  const std::string& least = *std::ranges::max_element(of_ranks, {}, place_of);
  // Where LOCKSTEP_CPU_ISA makes them alike, libraries still choose by the machine.
  const bool is_limited = cpu_kernels::limit_isa(least);
  if (bootstrap.rank() == 0 && !are_alike(of_ranks))
    LOCKSTEP_LOG(warning,
                 "ranks have different instruction sets, by their processors or by "
                 "LOCKSTEP_CPU_ISA: ",
                 describe(of_ranks, bootstrap), "; all compute with ", least,
                 ", so that replicas stay equal");
  if (!is_limited)
    LOCKSTEP_LOG(warning, "rank ", bootstrap.rank(),
                 " has computed before the Session began, with ", cpu_kernels::isa_name(),
                 ", and goes on so: replicas drift apart by roundings; "
                 "make the Session first, or give all ranks LOCKSTEP_CPU_ISA=",
                 least);
}

}  // namespace lockstep::comm
