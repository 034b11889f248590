#pragma once

#include <cstdint>
#include <vector>

#include "comm/operation.hpp"

/// @file
/// How an array with a part for each rank is cut for its way, whatever moves it.

namespace lockstep::comm::host {

/// Bytes of so many elements of an operation's array.
inline std::int64_t bytes_of(const Operation& operation, std::int64_t elements) {
  return elements * static_cast<std::int64_t>(size_of(operation.dtype));
}

/// Copies, where there is anything to copy.
void copy_bytes(std::byte* to, const std::byte* from, std::int64_t bytes);

/// A range of an array: elements, or bytes.
struct Part {
  std::int64_t begin = 0, size = 0;
};

/// Each rank's part, in elements: as the operation says, else parts that differ by one at most.
std::vector<Part> parts_of(const Operation& operation, int ranks);

/// Parts that are moved in rounds, of one piece of each part.
struct Pieces {
  std::vector<Part> parts;  ///< by rank
  std::int64_t piece;       ///< the longest that a piece may be
  std::int64_t rounds;

  Pieces(std::vector<Part> all, std::int64_t longest_piece);
  /// What is moved of a rank's part in a round; perhaps nothing.
  Part piece_of(int rank, std::int64_t round) const;
};

}  // namespace lockstep::comm::host
