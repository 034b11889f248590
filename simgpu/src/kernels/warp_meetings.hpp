#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/thread_scheduler.hpp"
#include "simgpu/warp.hpp"

/// @file
/// Where the lanes of a warp wait for each other.

namespace simgpu {

inline constexpr unsigned lanes_per_warp = 32;

/// What lanes come together for.
enum class Purpose : unsigned char { barrier, shuffle, ballot };

/// What a lane brings to a meeting.
struct Contribution {
  Purpose purpose = Purpose::barrier;
  std::uint64_t word = 0;
  unsigned source = 0;  ///< shuffles: the lane whose word is wanted
};

/// The meetings of all warps of a block. Lanes meet those that named the same mask.
class WarpMeetings {
 public:
  explicit WarpMeetings(ThreadScheduler& scheduler) : scheduler_(scheduler) {}

  void start_block();
  /// The running thread comes to a meeting of its warp's lanes in `mask`, and waits until all are
  /// there. @return the word of its source lane, or the lanes whose word was not 0 (ballots).
  std::uint64_t attend(unsigned mask, const Contribution& contribution);
  /// Lets lanes that wait go on without those that did not come. False if none wait.
  bool dissolve();

  /// Meetings that a thread's warp has held: what came before one is seen after it.
  std::uint16_t held(unsigned thread) const { return held_[thread / lanes_per_warp]; }

 private:
  struct Meeting {
    unsigned mask = 0;  ///< 0: not in use
    unsigned arrived = 0;
    std::array<Contribution, lanes_per_warp> of{};
  };
  using Meetings = std::vector<Meeting>;
  static Meeting& find(Meetings& meetings, unsigned mask);
  unsigned existing_lanes(unsigned warp) const;
  void hold(unsigned warp, Meeting& meeting, unsigned last_lane);

  ThreadScheduler& scheduler_;
  std::array<Meetings, max_block_threads / lanes_per_warp> meetings_;
  std::array<std::uint16_t, max_block_threads / lanes_per_warp> held_{};
  std::array<std::uint64_t, max_block_threads> result_{};
};

}  // namespace simgpu
