#pragma once

#include <cstdint>

#include "cpu/scratch.hpp"

/// @file
/// Sorting the positions of one line by keys.

namespace lockstep::cpu_kernels {

/// Sorts by unsigned keys, digit by digit from the highest on, and what few are left of a group
/// by insertion. Equal keys keep their order. One thread sorts at a time; it may use others.
class LineSort {
 public:
  /// Room for the keys of the next line. @throws Unsupported for 2^32 or more.
  std::uint64_t* keys(std::int64_t n);
  /// Writes the positions of those keys, rising, to `out`, `stride` elements apart.
  void write_order(std::int64_t* out, std::int64_t stride);

 private:
  struct Group;

  void sort(const Group& group);
  void split(const Group& group);
  void finish(const Group& group);
  void refine(const Group& group);

  Scratch memory_;
  std::uint64_t* keys_ = nullptr;
  std::int64_t length_ = 0;
  std::uint64_t least_ = 0;  ///< of the keys
  int position_bits_ = 0;    ///< of an entry: a key's highest bits and its position below
  std::int64_t* out_ = nullptr;
  std::int64_t stride_ = 1;
};

}  // namespace lockstep::cpu_kernels
