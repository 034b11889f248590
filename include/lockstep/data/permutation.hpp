#pragma once

#include <array>
#include <cstdint>
#include <vector>

/// @file
/// Random orders that depend on their arguments alone.

namespace lockstep::data {

/// A permutation of 0 ... count - 1 that is computed, not stored: each of its elements costs some
/// 15 ns wherever it lies, and nothing but a few words is kept for any count. The same for the same
/// arguments on every machine, and unrelated for another seed or epoch.
///
/// A Feistel network (Luby and Rackoff, 1988) over the smallest power of two that holds the count,
/// applied until it comes to lie below the count ("cycle walking": Black and Rogaway, "Ciphers with
/// arbitrary finite domains", 2002). It is no cipher: whoever knows some elements can find others.
class Permutation {
 public:
  /// @throws InvalidArgument for a negative count.
  Permutation(std::int64_t count, std::uint64_t seed, std::uint64_t epoch);

  /// How many numbers it permutes.
  std::int64_t size() const noexcept { return static_cast<std::int64_t>(count_); }
  /// The number at a position from 0 to `size()` - 1.
  /// @throws InvalidArgument for another position.
  std::int64_t operator()(std::int64_t position) const;

 private:
  // An even number.
  static constexpr int rounds = 8;
  struct Key {
    std::uint64_t added, factor;
  };

  std::uint64_t count_;
  int low_bits_, high_bits_;
  std::array<Key, rounds> keys_;
};

/// A uniformly drawn permutation of 0 ... count - 1 (Fisher and Yates' shuffle over Philox
/// numbers), all of it: the same for the same arguments on every machine, and unrelated for another
/// seed or epoch. @throws InvalidArgument for a negative count.
std::vector<std::int64_t> random_permutation(std::int64_t count, std::uint64_t seed,
                                             std::uint64_t epoch);

}  // namespace lockstep::data
