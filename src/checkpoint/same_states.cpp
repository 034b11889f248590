#include "checkpoint/same_states.hpp"

#include <map>
#include <span>
#include <sstream>
#include <utility>
#include <vector>

#include "checkpoint/exchange.hpp"
#include "checkpoint/told_values.hpp"
#include "io/in_quotes.hpp"
#include "lockstep/comm/host_values.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::checkpoint {
namespace {

/// "rank 2", "ranks 0 and 1", "ranks 0, 1, 2 and 5 more".
std::string in_words(std::span<const std::size_t> ranks) {
  constexpr std::size_t shown = 4;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  const std::size_t named = ranks.size() > shown ? shown - 1 : ranks.size();
  for (std::size_t i = 0; i < named; ++i)
    text += detail::concat(i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
  return ranks.size() > named ? detail::concat(text, " and ", ranks.size() - named, " more") : text;
}

std::string describe_difference(std::span<const std::string> names) {
  std::map<std::string, std::vector<bool>> holders;
  for (std::size_t rank = 0; rank < names.size(); ++rank) {
    lockstep::detail::TextReader lines(names[rank]);
    for (std::string name; std::getline(lines, name);) {
      holders[name].resize(names.size());
      holders[name][rank] = true;
    }
  }
  std::string text;
  for (const auto& [name, has] : holders) {
    std::vector<std::size_t> with, without;
    for (std::size_t rank = 0; rank < names.size(); ++rank)
      (has[rank] ? with : without).push_back(rank);
    if (without.empty()) continue;
    text += detail::concat(text.empty() ? "" : "; ", io::in_quotes(name), " was added on ",
                           in_words(with), " but not on ", in_words(without));
  }
  const bool has_parts = text.find(words_of_sharers) != std::string::npos;
  const bool has_values = text.find(words_of_values) != std::string::npos;
  return detail::concat(
      "ranks do not save the same states: ", text,
      has_values
          ? "; each writes a part of what all have alike: keep what a rank has of its own in "
            "a ValueState with load_on_new_rank or, tensors, as state_of_each_rank has them, add "
            "what is wrapped with its wrapper "
            "(add(\"model\", ddp), add(\"optimizer\", optimizer, ddp)), or bring all ranks to the "
            "same values before"
      : has_parts
          ? "; save each replica by a Manager over its ranks (of session.host_world()), in a "
            "folder of its own, or add the module alone if all ranks hold the same"
          : "; add the same ones on all ranks before a save");
}

}  // namespace

bool SameStates::begin(comm::Communicator& group, const Registry& registry, Finding finding) {
  answer_.reset();
  finding_ = finding;
  names_ = registry.names_and_more(group.size());
  if (!registry.may_have_more()) return false;
  const SharedStates& all = answer(group, registry.has_more());
  LOCKSTEP_CHECK(all.difference.empty(), InvalidArgument, all.difference);
  return all.has_more;
}

void SameStates::check(comm::Communicator& group, const Registry& registry) {
  answer_.reset();
  names_ = registry.names();
  const SharedStates& all = answer(group);
  LOCKSTEP_CHECK(all.difference.empty(), InvalidArgument, all.difference);
}

const SharedStates& SameStates::answer(comm::Communicator& group, bool has_more) {
  if (answer_) return *answer_;
  const Compared compared = compare(group, names_, has_more, finding_.number(), label_);
  // Kept before anything else can fail: the ranks compare once.
  SharedStates& all = answer_.emplace(SharedStates{
      .has_more = compared.any,
      .finding = Finding(compared.largest),
      .difference = compared.is_same ? "" : "states differ"});  // short: it takes no memory
  if (!compared.is_same)
    all.difference = describe_difference(comm::all_gather_bytes(group, names_, label_));
  return all;
}

}  // namespace lockstep::checkpoint
