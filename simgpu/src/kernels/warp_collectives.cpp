#include "kernels/warp_collectives.hpp"

#include <algorithm>
#include <bit>

#include "kernels/kernel_findings.hpp"

namespace simgpu {

void WarpCollectives::start_block() {
  for (Collectives& collectives : collectives_)
    for (Collective& collective : collectives) collective.mask = 0;
  for (Meetings& meetings : meetings_) meetings.clear();
  completed_.fill(0);
}

WarpCollectives::Block WarpCollectives::block() const {
  return {collectives_, meetings_, completed_, result_};
}

void WarpCollectives::go_on_with(const Block& block) {
  collectives_ = block.collectives;
  meetings_ = block.meetings;
  completed_ = block.completed;
  result_ = block.result;
}

WarpCollectives::Collective& WarpCollectives::find(Collectives& collectives, unsigned mask) {
  Collective* unused = nullptr;
  for (Collective& collective : collectives) {
    if (collective.mask == mask) return collective;
    if (collective.mask == 0) unused = &collective;
  }
  if (!unused) unused = &collectives.emplace_back();
  unused->mask = mask;
  unused->arrived = 0;
  return *unused;
}

/// The last warp of a block may have fewer than 32.
unsigned WarpCollectives::existing_lanes(unsigned warp) const {
  const unsigned rest = scheduler_.threads() - warp * lanes_per_warp;
  return rest >= lanes_per_warp ? ~0u : (1u << rest) - 1;
}

std::uint64_t WarpCollectives::join(unsigned mask, const Contribution& contribution) {
  const unsigned self = scheduler_.current();
  const unsigned warp = self / lanes_per_warp;
  const unsigned lane = self % lanes_per_warp;
  if (!(mask >> lane & 1)) {
    found_lane_outside_mask(lane, mask);
    return contribution.word;
  }
  mask &= existing_lanes(warp);
  Collective& collective = find(collectives_[warp], mask);
  collective.arrived |= 1u << lane;
  collective.of[lane] = contribution;
  if (collective.arrived == mask)
    complete(warp, collective, lane);
  else
    scheduler_.wait(ThreadState::at_warp_collective);
  return result_[self];
}

/// Gives every lane its result and lets all but the last one, which runs, go on.
void WarpCollectives::complete(unsigned warp, Collective& collective, unsigned last_lane) {
  const bool all_came = collective.arrived == collective.mask;
  const unsigned first = warp * lanes_per_warp;
  const unsigned arrived = collective.arrived;
  std::uint64_t ballot = 0;
  for (unsigned lane = 0; lane < lanes_per_warp; ++lane)
    if (arrived >> lane & 1 && collective.of[lane].word != 0) ballot |= std::uint64_t{1} << lane;
  for (unsigned lane = 0; lane < lanes_per_warp; ++lane) {
    if (!(arrived >> lane & 1)) continue;
    const Contribution& own = collective.of[lane];
    const bool present = arrived >> own.source & 1;
    if (own.operation == WarpOperation::shuffle && !present && all_came && !own.may_lack_source)
      found_absent_source(first + lane, own.source, arrived);
    result_[first + lane] = own.operation == WarpOperation::ballot ? ballot
                            : present                              ? collective.of[own.source].word
                                                                   : undefined_word;
    if (lane != last_lane) scheduler_.make_ready(first + lane);
  }
  const unsigned one = static_cast<unsigned>(std::countr_zero(arrived));
  if (collective.of[one].operation == WarpOperation::barrier) ++completed_[warp];
  collective.mask = 0;
}

unsigned WarpCollectives::live_lanes(unsigned warp) const {
  unsigned lanes = existing_lanes(warp);
  for (unsigned lane = 0; lane < lanes_per_warp; ++lane)
    if (lanes >> lane & 1 && scheduler_.state(warp * lanes_per_warp + lane) == ThreadState::left)
      lanes &= ~(1u << lane);
  return lanes;
}

unsigned WarpCollectives::meet(const void* place) {
  const unsigned self = scheduler_.current(), lane = self % lanes_per_warp;
  const unsigned warp = self / lanes_per_warp;
  Meetings& meetings = meetings_[warp];
  auto meeting = std::find_if(meetings.begin(), meetings.end(),
                              [&](const Meeting& each) { return each.place == place; });
  if (meeting == meetings.end()) meeting = meetings.insert(meeting, {place, 0});
  meeting->arrived |= 1u << lane;
  if (meeting->arrived == live_lanes(warp))  // there is no other meeting of the warp
    end_meetings(warp, lane);
  else
    scheduler_.wait(ThreadState::at_warp_collective);
  return static_cast<unsigned>(result_[self]);
}

/// Lets all lanes go on but one that runs.
void WarpCollectives::end_meetings(unsigned warp, unsigned running) {
  for (const Meeting& meeting : meetings_[warp])
    for (unsigned lane = 0; lane < lanes_per_warp; ++lane) {
      if (!(meeting.arrived >> lane & 1)) continue;
      result_[warp * lanes_per_warp + lane] = meeting.arrived;
      if (lane != running) scheduler_.make_ready(warp * lanes_per_warp + lane);
    }
  meetings_[warp].clear();
}

bool WarpCollectives::end_meetings() {
  bool any = false;
  for (unsigned warp = 0; warp * lanes_per_warp < scheduler_.threads(); ++warp) {
    any |= !meetings_[warp].empty();
    end_meetings(warp, lanes_per_warp);
  }
  return any;
}

bool WarpCollectives::let_waiting_go() {
  bool any = false;
  for (unsigned warp = 0; warp * lanes_per_warp < scheduler_.threads(); ++warp)
    for (Collective& collective : collectives_[warp])
      if (collective.mask != 0) {
        complete(warp, collective, lanes_per_warp);
        any = true;
      }
  return any;
}

}  // namespace simgpu
