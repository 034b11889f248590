#include "memory/lifetime_plan.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>

namespace lockstep::detail {
namespace {

/// Puts blocks one after the other where they fit best among those that are placed already.
class Placement {
 public:
  /// @param borders where pieces of memory end
  Placement(std::span<const Lifetime> lifetimes, std::span<const std::size_t> borders)
      : lifetimes_(lifetimes),
        borders_(borders),
        plan_{std::vector<std::size_t>(lifetimes.size()), borders.empty() ? 0 : borders.back()} {
    by_offset_.reserve(lifetimes.size());
  }

  void place(std::size_t which) {
    const Lifetime& block = lifetimes_[which];
    const std::size_t offset = best_gap(block);
    plan_.offsets[which] = offset;
    plan_.bytes = std::max(plan_.bytes, offset + block.bytes);
    const auto behind = std::ranges::upper_bound(
        by_offset_, offset, {}, [this](std::size_t i) { return plan_.offsets[i]; });
    by_offset_.insert(behind, which);
  }

  OffsetPlan result() && { return std::move(plan_); }

 private:
  /// The smallest gap between blocks of its time that holds it, else what is behind all of them.
  std::size_t best_gap(const Lifetime& block) const {
    std::size_t best = 0, smallest = endless, begin = 0;
    auto border = borders_.begin();
    const auto look_at = [&](std::size_t end) {
      if (end < begin + block.bytes || end - begin >= smallest) return;
      smallest = end - begin;
      best = begin;
    };
    const auto look_up_to = [&](std::size_t end) {
      for (; border != borders_.end() && *border <= end; ++border) {
        look_at(*border);
        begin = std::max(begin, *border);
      }
      look_at(end);
    };
    for (const std::size_t i : by_offset_) {
      const Lifetime& other = lifetimes_[i];
      if (other.end <= block.begin || block.end <= other.begin) continue;
      look_up_to(plan_.offsets[i]);
      begin = std::max(begin, plan_.offsets[i] + other.bytes);
    }
    look_up_to(endless - 1);
    return best;
  }

  static constexpr std::size_t endless = std::numeric_limits<std::size_t>::max();
  std::span<const Lifetime> lifetimes_;
  std::span<const std::size_t> borders_;
  OffsetPlan plan_;
  std::vector<std::size_t> by_offset_;  // those that are placed
};

double area(const Lifetime& block) {
  return static_cast<double>(block.bytes) * static_cast<double>(block.end - block.begin);
}

}  // namespace

std::size_t most_live_bytes(std::span<const Lifetime> lifetimes) {
  std::vector<std::pair<std::size_t, std::int64_t>> changes;
  changes.reserve(2 * lifetimes.size());
  for (const Lifetime& block : lifetimes) {
    changes.emplace_back(block.begin, static_cast<std::int64_t>(block.bytes));
    changes.emplace_back(block.end, -static_cast<std::int64_t>(block.bytes));
  }
  std::ranges::sort(changes);  // of one event, what is freed comes first
  std::int64_t live = 0, most = 0;
  for (const auto& [event, change] : changes) most = std::max(most, live += change);
  return static_cast<std::size_t>(most);
}

OffsetPlan plan_offsets(std::span<const Lifetime> lifetimes, std::span<const std::size_t> pieces) {
  using Order = bool (*)(const Lifetime&, const Lifetime&);
  const std::array<Order, 3> orders{
      [](const Lifetime& a, const Lifetime& b) { return a.bytes > b.bytes; },
      [](const Lifetime& a, const Lifetime& b) { return area(a) > area(b); },
      [](const Lifetime& a, const Lifetime& b) { return a.begin < b.begin; }};
  OffsetPlan best{{}, std::numeric_limits<std::size_t>::max()};
  std::vector<std::size_t> borders(pieces.size());
  std::partial_sum(pieces.begin(), pieces.end(), borders.begin());
  const std::size_t given = borders.empty() ? 0 : borders.back();
  const std::size_t least = std::max(given, most_live_bytes(lifetimes));
  std::vector<std::size_t> sequence(lifetimes.size());
  for (const Order before : orders) {
    std::iota(sequence.begin(), sequence.end(), std::size_t{0});
    std::ranges::stable_sort(
        sequence, [&](std::size_t a, std::size_t b) { return before(lifetimes[a], lifetimes[b]); });
    Placement placement(lifetimes, borders);
    for (const std::size_t which : sequence) placement.place(which);
    OffsetPlan plan = std::move(placement).result();
    if (plan.bytes < best.bytes) best = std::move(plan);
    if (best.bytes <= least) break;
  }
  return best;
}

}  // namespace lockstep::detail
