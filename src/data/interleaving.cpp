#include "data/interleaving.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace lockstep::data {
namespace {

// The next position of a source must be one of these, or its share is missed.
struct Window {
  std::int64_t first, last;
};

// Of the position that a source of this weight has after `count` others. Its share of n positions
// is rounded up to count + 1 from the first n beyond count * period / weight on, and down to it
// from (count + 1) * period / weight on.
Window window(std::int64_t weight, std::int64_t count, std::int64_t period) {
  return {.first = count * period / weight, .last = ((count + 1) * period - 1) / weight};
}

}  // namespace

Interleaving::Interleaving(std::vector<std::int64_t> weights)
    : weights_(std::move(weights)), positions_(weights_.size()) {
  const std::int64_t period = std::reduce(weights_.begin(), weights_.end());
  constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
  std::vector<Window> next;
  for (const std::int64_t weight : weights_)
    next.push_back(weight > 0 ? window(weight, 0, period) : Window{never, never});
  // Earliest deadline first, which keeps all of them where any order does, and one exists.
  for (std::int64_t position = 0; position < period; ++position) {
    std::size_t chosen = 0;
    std::int64_t earliest = never;
    for (std::size_t i = 0; i < next.size(); ++i)
      if (next[i].first <= position && next[i].last < earliest) {
        chosen = i;
        earliest = next[i].last;
      }
    source_.push_back(static_cast<std::uint32_t>(chosen));
    auto& own = positions_[chosen];
    own.push_back(static_cast<std::uint32_t>(position));
    next[chosen] = window(weights_[chosen], std::ssize(own), period);
  }
}

std::int64_t Interleaving::count(std::size_t source, std::int64_t positions) const {
  const auto& own = positions_[source];
  const auto end = std::ranges::lower_bound(own, positions % period());
  return positions / period() * weights_[source] + (end - own.begin());
}

}  // namespace lockstep::data
