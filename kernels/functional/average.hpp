#pragma once

#include "functional/namespace.hpp"
#include "lockstep/core/macros.hpp"

namespace lockstep::functional::inline LOCKSTEP_ISA {

/// What an average becomes of which a value is to be that share. From the nearer one: with a share
/// of 1 it is the value, however far that was.
template <class A>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE A averaged(A average, A value, A share) {
  const A difference = value - average;
  return share < A(0.5) ? average + share * difference : value - (A(1) - share) * difference;
}

}  // namespace lockstep::functional::inline LOCKSTEP_ISA
