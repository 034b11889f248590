#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

/// @file
/// Which of several sources has each position of a sequence.

namespace lockstep::data {

/// Gives positions 0, 1, 2, ... to sources so that of the first n positions source i has
/// n * weight[i] / sum, rounded down or up, for every n.
class Interleaving {
 public:
  /// @param weights whole numbers of 0 or more, not all 0, that no number above 1 divides.
  explicit Interleaving(std::vector<std::int64_t> weights);

  const std::vector<std::int64_t>& weights() const { return weights_; }
  /// The source of a position.
  std::size_t source(std::int64_t position) const {
    return source_[static_cast<std::size_t>(position % period())];
  }
  /// How many of the first positions a source has.
  std::int64_t count(std::size_t source, std::int64_t positions) const;

 private:
  std::int64_t period() const { return static_cast<std::int64_t>(source_.size()); }

  std::vector<std::int64_t> weights_;
  std::vector<std::uint32_t> source_;                  // of each position of a period
  std::vector<std::vector<std::uint32_t>> positions_;  // of each source, in a period
};

}  // namespace lockstep::data
