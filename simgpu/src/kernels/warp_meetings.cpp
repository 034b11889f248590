#include "kernels/warp_meetings.hpp"

#include "kernels/kernel_findings.hpp"

namespace simgpu {

void WarpMeetings::start_block() {
  for (Meetings& meetings : meetings_)
    for (Meeting& meeting : meetings) meeting.mask = 0;
  held_.fill(0);
}

WarpMeetings::Meeting& WarpMeetings::find(Meetings& meetings, unsigned mask) {
  Meeting* unused = nullptr;
  for (Meeting& meeting : meetings) {
    if (meeting.mask == mask) return meeting;
    if (meeting.mask == 0) unused = &meeting;
  }
  if (!unused) unused = &meetings.emplace_back();
  unused->mask = mask;
  unused->arrived = 0;
  return *unused;
}

/// The last warp of a block may have fewer than 32.
unsigned WarpMeetings::existing_lanes(unsigned warp) const {
  const unsigned rest = scheduler_.threads() - warp * lanes_per_warp;
  return rest >= lanes_per_warp ? ~0u : (1u << rest) - 1;
}

std::uint64_t WarpMeetings::attend(unsigned mask, const Contribution& contribution) {
  const unsigned self = scheduler_.current();
  const unsigned warp = self / lanes_per_warp;
  const unsigned lane = self % lanes_per_warp;
  if (!(mask >> lane & 1)) {
    found_lane_outside_mask(lane, mask);
    return contribution.word;
  }
  mask &= existing_lanes(warp);
  Meeting& meeting = find(meetings_[warp], mask);
  meeting.arrived |= 1u << lane;
  meeting.of[lane] = contribution;
  if (meeting.arrived == mask)
    hold(warp, meeting, lane);
  else
    scheduler_.wait(ThreadState::at_meeting);
  return result_[self];
}

/// Gives every lane its result and lets all but the last one, which runs, go on.
void WarpMeetings::hold(unsigned warp, Meeting& meeting, unsigned last_lane) {
  const bool complete = meeting.arrived == meeting.mask;
  const unsigned first = warp * lanes_per_warp;
  const unsigned arrived = meeting.arrived;
  std::uint64_t ballot = 0;
  for (unsigned lane = 0; lane < lanes_per_warp; ++lane)
    if (arrived >> lane & 1 && meeting.of[lane].word != 0) ballot |= std::uint64_t{1} << lane;
  for (unsigned lane = 0; lane < lanes_per_warp; ++lane) {
    if (!(arrived >> lane & 1)) continue;
    const Contribution& own = meeting.of[lane];
    const bool present = arrived >> own.source & 1;
    if (own.purpose == Purpose::shuffle && !present && complete)
      found_absent_source(first + lane, own.source, arrived);
    result_[first + lane] = own.purpose == Purpose::ballot ? ballot
                            : present                      ? meeting.of[own.source].word
                                                           : own.word;
    if (lane != last_lane) scheduler_.make_ready(first + lane);
  }
  meeting.mask = 0;
  ++held_[warp];
}

bool WarpMeetings::dissolve() {
  bool any = false;
  for (unsigned warp = 0; warp * lanes_per_warp < scheduler_.threads(); ++warp)
    for (Meeting& meeting : meetings_[warp])
      if (meeting.mask != 0) {
        hold(warp, meeting, lanes_per_warp);
        any = true;
      }
  return any;
}

}  // namespace simgpu
