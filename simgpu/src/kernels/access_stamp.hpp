#pragma once

#include <cstdint>

/// @file
/// Who touched memory, when and how, in one word.

namespace simgpu {

/// Where a launch stands. The epoch counts the barriers and the blocks of all launches.
struct LaunchTime {
  std::uint32_t epoch = 1;
  std::uint32_t launch_start = 1;  ///< the epochs with which launch and block began
  std::uint32_t block_start = 1;
};

/// An access, by the epoch and the thread of its block. The epoch also tells the block and the
/// launch, so that stamps of former launches need not be cleared.
class AccessStamp {
 public:
  static constexpr unsigned place_bits = 19;
  /// Epochs past this do not fit.
  static constexpr std::uint32_t last_epoch = (1u << 31) - 1;

  /// How it was done.
  struct How {
    unsigned fences = 0;       ///< that the thread made before it in the same epoch, at most 3
    bool is_strong = false;    ///< atomic; a read: volatile
    bool is_of_block = false;  ///< atomic for its block only
  };

  AccessStamp() = default;
  explicit AccessStamp(std::uint64_t word) : word_(word) {}
  AccessStamp(std::uint32_t epoch, unsigned thread, How how, unsigned place)
      : word_(std::uint64_t{epoch} << epoch_shift | std::uint64_t{thread} << thread_shift |
              std::uint64_t{how.fences} << 21 | std::uint64_t{how.is_strong} << 20 |
              std::uint64_t{how.is_of_block} << 19 | place) {}

  std::uint64_t word() const { return word_; }
  std::uint32_t epoch() const { return static_cast<std::uint32_t>(word_ >> epoch_shift); }
  unsigned thread() const { return static_cast<unsigned>(word_ >> thread_shift) & 0x3FF; }
  unsigned fences() const { return static_cast<unsigned>(word_ >> 21) & 3; }
  bool is_strong() const { return word_ >> 20 & 1; }
  bool is_of_block() const { return word_ >> 19 & 1; }
  /// The low bits of the place in the code.
  unsigned place() const { return static_cast<unsigned>(word_) & ((1u << place_bits) - 1); }

  bool is_of_same_thread(AccessStamp other) const {
    return (word_ ^ other.word_) >> thread_shift == 0;
  }

 private:
  static constexpr unsigned thread_shift = 23, epoch_shift = 33;
  std::uint64_t word_ = 0;
};

}  // namespace simgpu
