#pragma once

#include <cstdint>
#include <optional>

/// @file
/// What reading checkpoints back has come to.

namespace lockstep::checkpoint {

/// What one rank, or several together, know of checkpoints that were saved. Ranks tell each other a
/// number, of which the largest counts.
class Finding {
 public:
  /// There was no time to read the last one, or no way.
  constexpr Finding() = default;
  /// Every byte of the last one was read, and is as it was written.
  static constexpr Finding whole() noexcept { return Finding(-2); }
  /// The one of a step, the last or one before, is damaged.
  static constexpr Finding damaged(std::int64_t step) noexcept { return Finding(step); }
  explicit constexpr Finding(std::int64_t number) noexcept : number_(number) {}

  constexpr std::int64_t number() const noexcept { return number_; }
  constexpr bool is_whole() const noexcept { return number_ == -2; }
  /// The step of the one that is damaged.
  constexpr std::optional<std::int64_t> damaged() const noexcept {
    return number_ >= 0 ? std::optional(number_) : std::nullopt;
  }

 private:
  std::int64_t number_ = -1;
};

}  // namespace lockstep::checkpoint
