#include "comm/group_news.hpp"

#include <cstdint>

namespace lockstep::comm::news {
namespace {

// How many of the first ranks are evenly spaced.
std::size_t length_of_run(std::span<const int> ranks) {
  if (ranks.size() < 3) return std::min<std::size_t>(ranks.size(), 1);
  std::size_t count = 2;
  while (count < ranks.size() && ranks[count] - ranks[count - 1] == ranks[1] - ranks[0]) ++count;
  return count > 2 ? count : 1;
}

std::string text_of_run(std::span<const int> run) {
  std::string text = std::to_string(run.front());
  if (run.size() == 1) return text;
  text += '-' + std::to_string(run.back());
  const int step = run[1] - run[0];
  return step == 1 ? text : text + ':' + std::to_string(step);
}

}  // namespace

std::string take_rank_list(std::span<const int>& ranks, std::size_t most_bytes) {
  std::string list;
  while (!ranks.empty()) {
    const std::size_t count = length_of_run(ranks);
    const std::string run = text_of_run(ranks.first(count));
    if (!list.empty() && list.size() + 1 + run.size() > most_bytes) break;
    list += (list.empty() ? "" : ",") + run;
    ranks = ranks.subspan(count);
  }
  return list;
}

std::vector<int> ranks_in(std::string_view list, int size) {
  std::vector<int> ranks;
  while (!list.empty() && ranks.size() < static_cast<std::size_t>(size)) {
    std::string_view run = list.substr(0, list.find(','));
    list.remove_prefix(std::min(run.size() + 1, list.size()));
    const std::size_t colon = std::min(run.find(':'), run.size());
    const std::int64_t step = colon < run.size() ? number<int>(run.substr(colon + 1)) : 1;
    run = run.substr(0, colon);
    const std::size_t dash = run.find('-', 1);
    const int first = number<int>(run.substr(0, dash));
    const int last = dash == std::string_view::npos
                         ? first
                         : std::min(number<int>(run.substr(dash + 1)), size - 1);
    if (first < 0 || first >= size || step < 1) continue;
    for (std::int64_t rank = first; rank <= last; rank += step)
      ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

}  // namespace lockstep::comm::news
