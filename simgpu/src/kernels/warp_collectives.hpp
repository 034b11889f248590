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

/// What the lanes of a warp do together.
enum class WarpOperation : unsigned char { barrier, shuffle, ballot };

/// What a lane brings to a collective.
struct Contribution {
  WarpOperation operation = WarpOperation::barrier;
  std::uint64_t word = 0;
  unsigned source = 0;  ///< shuffles: the lane whose word is wanted
  /// Shuffles up and down read past the lanes that take part, where sums do not use what they get.
  bool may_lack_source = false;
};

/// What a shuffle gives whose source is not there: as undefined as on a GPU, as f32 and f64 NaN.
inline constexpr std::uint64_t undefined_word = ~std::uint64_t{0};

/// The collectives of all warps of a block. Lanes meet those that named the same mask.
class WarpCollectives {
 public:
  explicit WarpCollectives(ThreadScheduler& scheduler) : scheduler_(scheduler) {}

  void start_block();
  /// The running thread joins a collective of its warp's lanes in `mask`, and waits until all are
  /// there. @return the word of its source lane, or the lanes whose word was not 0 (ballots).
  std::uint64_t join(unsigned mask, const Contribution& contribution);
  /// The running thread waits for those of its warp that come to the same place in the code, until
  /// no other thread of the block can run. @return the lanes that came.
  unsigned meet(const void* place);
  /// Lets lanes that meet go on with those that have come. False if none do.
  bool end_meetings();
  /// Lets lanes that wait go on without those that did not come. False if none wait.
  bool let_waiting_go();

  /// Those of the block that runs; another one's in their place.
  struct Block;
  Block block() const;
  void go_on_with(const Block& block);

  /// Barriers that a thread's warp has completed: what came before one is seen after it. Shuffles
  /// and votes order no memory (CUDA C++ Programming Guide, warp shuffle functions).
  std::uint16_t completed(unsigned thread) const { return completed_[thread / lanes_per_warp]; }

 private:
  struct Collective {
    unsigned mask = 0;  ///< 0: not in use
    unsigned arrived = 0;
    std::array<Contribution, lanes_per_warp> of{};
  };
  using Collectives = std::vector<Collective>;
  struct Meeting {
    const void* place;
    unsigned arrived;
  };
  using Meetings = std::vector<Meeting>;
  static Collective& find(Collectives& collectives, unsigned mask);
  unsigned existing_lanes(unsigned warp) const;
  void complete(unsigned warp, Collective& collective, unsigned last_lane);
  void end_meetings(unsigned warp, unsigned running);
  unsigned live_lanes(unsigned warp) const;

  ThreadScheduler& scheduler_;
  std::array<Collectives, max_block_threads / lanes_per_warp> collectives_;
  std::array<Meetings, max_block_threads / lanes_per_warp> meetings_;
  std::array<std::uint16_t, max_block_threads / lanes_per_warp> completed_{};
  std::array<std::uint64_t, max_block_threads> result_{};
};

struct WarpCollectives::Block {
  std::array<Collectives, max_block_threads / lanes_per_warp> collectives;
  std::array<Meetings, max_block_threads / lanes_per_warp> meetings;
  std::array<std::uint16_t, max_block_threads / lanes_per_warp> completed;
  std::array<std::uint64_t, max_block_threads> result;
};

}  // namespace simgpu
