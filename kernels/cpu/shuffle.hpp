#pragma once

#include "lockstep/core/macros.hpp"

/// @file
/// Lanes of vectors in another order, in the words of each compiler.

// Being inlined, functions that take vectors have no calling convention to warn about.
#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

namespace lockstep::cpu_kernels {

/// The vector of the lanes with these numbers, where those of `b` come after those of `a`.
template <int... lane, class Vector>
LOCKSTEP_ALWAYS_INLINE Vector shuffled(Vector a, Vector b) {
#if defined(__clang__) || __GNUC__ >= 12
  return __builtin_shufflevector(a, b, lane...);
#else
  return __builtin_shuffle(a, b, decltype(a < b){lane...});
#endif
}

}  // namespace lockstep::cpu_kernels
