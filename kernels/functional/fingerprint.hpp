#pragma once

#include <cstddef>
#include <cstdint>

#include "functional/namespace.hpp"
#include "lockstep/core/macros.hpp"

/// @file
/// Telling arrays apart by one number each.

namespace lockstep::functional::inline LOCKSTEP_ISA {

/// What one element adds to the fingerprint of its array; sums wrap around, so that their order
/// does not matter. The finalizer of splitmix64 (Steele, Lea and Flood 2014) over value and place:
/// one to one in the value, so that an array which differs in one element has another fingerprint,
/// and one that differs in several has the same with a probability of 2^-64.
/// @param bits the element as it lies in memory. @param place its number in the array.
LOCKSTEP_HD inline std::uint64_t fingerprint_of(std::uint64_t bits, std::int64_t place) {
  std::uint64_t x = bits ^ (static_cast<std::uint64_t>(place) + 1) * 0x9E3779B97F4A7C15u;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

/// Calls `visit(Bits())` with the unsigned integer of an element's size.
template <class Visit>
void dispatch_bits(std::size_t element_bytes, const Visit& visit) {
  switch (element_bytes) {
    case 1: return visit(std::uint8_t{});
    case 2: return visit(std::uint16_t{});
    case 4: return visit(std::uint32_t{});
    default: return visit(std::uint64_t{});
  }
}

}  // namespace lockstep::functional::inline LOCKSTEP_ISA
