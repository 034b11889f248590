#pragma once

#include "functional/namespace.hpp"
#include "lockstep/core/macros.hpp"

namespace lockstep::functional::inline LOCKSTEP_ISA {

/// What an average becomes of which a value is to be that share. A share of 1 gives the value,
/// however far that was.
template <class A>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE A averaged(A average, A value, A share) {
  const A near = average + share * (value - average);
  const A far = share * value + (A(1) - share) * average;
  return share == A(1) ? value : share < A(0.5) ? near : far;
}

}  // namespace lockstep::functional::inline LOCKSTEP_ISA
