#include "kernels/fence_order.hpp"

#include <algorithm>

namespace simgpu {

void FenceOrder::begin_launch() {
  runs_.clear();
  locations_.clear();
  observations_.clear();
  fence_epoch_.fill(0);
  warp_epoch_.fill(0);
  last_fence_epoch_ = 0;
  any_fence_ = false;
  has_gone_on_ = false;
}

void FenceOrder::begin_block(uint3 block) {
  runs_.push_back({time_.epoch, block});
  observations_.clear();
  several_fenced_ = false;
}

FenceOrder::Left FenceOrder::leave_block() const {
  Left left{observations_, {}};
  for (unsigned thread = 0; thread < max_block_threads; ++thread)
    left.has_fenced[thread] = has_fenced(thread);
  return left;
}

void FenceOrder::go_on_with(uint3 block, const Left& left) {
  begin_block(block);
  has_gone_on_ = true;
  observations_ = left.observations;
  for (unsigned thread = 0; thread < max_block_threads; ++thread)
    if (left.has_fenced[thread]) {
      fence_epoch_[thread] = last_fence_epoch_ = time_.epoch;
      fence_count_[thread] = 1;
    }
}

bool FenceOrder::are_of_one_block(std::size_t run, std::size_t other) const {
  const uint3 &one = runs_[run].index, &two = runs_[other].index;
  return run == other || (one.x == two.x && one.y == two.y && one.z == two.z);
}

bool FenceOrder::is_before_leaving(AccessStamp then) const {
  return has_gone_on_ && then.epoch() < time_.block_start &&
         are_of_one_block(number_of(then), runs_.size() - 1);
}

void FenceOrder::fence(unsigned thread) {
  any_fence_ = true;
  several_fenced_ =
      last_fence_epoch_ == time_.epoch && (several_fenced_ || fence_epoch_[thread] != time_.epoch);
  fence_count_[thread] = static_cast<unsigned char>(std::min(fences_in_epoch(thread) + 1, 4u));
  last_fence_epoch_ = fence_epoch_[thread] = time_.epoch;
  fence_number_[thread] = ++number_;
  for (Observation& observation : observations_)
    if (observation.fence_epoch == 0 && is_visible(observation, thread))
      observation.fence_epoch = time_.epoch;
}

void FenceOrder::synchronize(unsigned thread, std::uintptr_t address, bool releases) {
  runs_.back().has_synchronized |= releases;
  if (!any_fence_) return;
  const bool hands_on = releases && last_fence_epoch_ >= time_.block_start;
  const auto known = locations_.find(address);
  if (known == locations_.end() && !hands_on) return;
  Location& location = known != locations_.end() ? known->second : locations_[address];
  if (!location.releases.empty()) observe(location, thread);
  if (hands_on) release(location, thread);
}

void FenceOrder::observe(const Location& location, unsigned thread) {
  const Observation now{{&location, location.releases.size()}, thread, time_.epoch, ++number_};
  for (Observation& former : observations_)
    if (former.seen.location == &location && former.thread == thread) {
      former = now;
      return;
    }
  observations_.push_back(now);
}

void FenceOrder::release(Location& location, unsigned thread) {
  // A fence of another thread counts once a barrier has followed.
  std::uint32_t epoch = has_fenced(thread) ? fence_epoch_[thread] : 0;
  if (last_fence_epoch_ < time_.epoch) epoch = std::max(epoch, last_fence_epoch_);
  if (epoch == 0) return;
  const std::size_t at = location.releases.size();
  for (const Observation& observation : observations_)
    if (observation.seen.location != &location && is_visible(observation, thread))
      location.inherited.push_back({at, observation.seen});
  const bool of_all = several_fenced_ && epoch == last_fence_epoch_ && epoch < time_.epoch;
  const unsigned fences = epoch == fence_epoch_[thread] ? fence_count_[thread] : 0;
  location.releases.push_back(
      {runs_.size() - 1, epoch, thread, fences, of_all, warp_epoch_[thread / 32] == epoch});
}

std::size_t FenceOrder::number_of(AccessStamp stamp) const {
  const auto next =
      std::upper_bound(runs_.begin(), runs_.end(), stamp.epoch(),
                       [](std::uint32_t epoch, const BlockRun& run) { return epoch < run.start; });
  return static_cast<std::size_t>(next - runs_.begin()) - 1;
}

bool FenceOrder::is_visible(const Observation& observation, unsigned thread) const {
  return observation.thread == thread || observation.epoch < time_.epoch ||
         have_met(observation.thread, thread);
}

bool FenceOrder::is_fenced(const Observation& observation, unsigned thread) const {
  if (observation.fence_epoch != 0 && observation.fence_epoch < time_.epoch) return true;
  if (!has_fenced(thread)) return false;
  return observation.thread == thread
             ? fence_number_[thread] > observation.number
             : fence_epoch_[thread] > observation.epoch || observation.fence_epoch == time_.epoch;
}

bool FenceOrder::is_before(AccessStamp then, unsigned thread, bool values) const {
  if (observations_.empty()) return false;
  const std::size_t block = number_of(then);
  return std::any_of(observations_.begin(), observations_.end(), [&](const Observation& each) {
    return is_visible(each, thread) && (!values || is_fenced(each, thread)) &&
           covers(each.seen, block, then, 0);
  });
}

bool FenceOrder::covers(const Release& release, AccessStamp then) {
  if (then.epoch() != release.epoch) return then.epoch() < release.epoch;
  if (then.thread() == release.thread) return then.fences() < release.fences;
  return release.of_all || (release.of_warp && then.thread() / 32 == release.thread / 32);
}

bool FenceOrder::covers(const Seen& seen, std::size_t block, AccessStamp then, int depth) const {
  constexpr int deepest = 8;
  const Location& location = *seen.location;
  const auto end = location.releases.begin() + static_cast<std::ptrdiff_t>(seen.count);
  auto at = std::lower_bound(
      location.releases.begin(), end, block,
      [](const Release& release, std::size_t number) { return release.block < number; });
  for (; at != end && (has_gone_on_ || at->block == block); ++at)
    if (are_of_one_block(at->block, block) && covers(*at, then)) return true;
  if (depth == deepest) return false;
  return std::any_of(location.inherited.begin(), location.inherited.end(), [&](const auto& each) {
    return each.first < seen.count && covers(each.second, block, then, depth + 1);
  });
}

}  // namespace simgpu
