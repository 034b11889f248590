#pragma once

#include <cstddef>
#include <span>
#include <vector>

/// @file
/// Places for blocks whose lifetimes are known before the first is allocated.

namespace lockstep::detail {

/// A block that a step wants from one of its events to another.
struct Lifetime {
  std::size_t bytes;
  std::size_t begin;  ///< the event that allocates it
  std::size_t end;    ///< the event that frees it, later
};

/// Where blocks lie, so that no two that live at a time overlap.
struct OffsetPlan {
  /// Of each lifetime, in bytes, as if all pieces of memory lay one behind the other.
  std::vector<std::size_t> offsets;
  std::size_t bytes = 0;  ///< what holds them all: those of the given pieces, and what is missing
};

/// Most bytes that live at a time: no plan needs less.
std::size_t most_live_bytes(std::span<const Lifetime> lifetimes);

/// Places blocks in little memory. To find the least is NP-hard; this takes the best of three
/// greedy orders: by size, by size times duration, by time (Pisarchyk and Lee, Efficient Memory
/// Management for Deep Neural Net Inference, 2020). Takes a time that grows with the square of
/// their number.
/// @param lifetimes whose sizes are multiples of the alignment that offsets shall have
/// @param pieces sizes of memory that is there already, multiples of the same: no block lies in two
OffsetPlan plan_offsets(std::span<const Lifetime> lifetimes,
                        std::span<const std::size_t> pieces = {});

}  // namespace lockstep::detail
