#pragma once

#include <cstdint>
#include <type_traits>

#include "functional/namespace.hpp"
#include "functional/op_list.hpp"
#include "lockstep/core/macros.hpp"

namespace lockstep::functional::inline LOCKSTEP_ISA {

/// True for the accumulation type of integers.
template <class T>
inline constexpr bool is_integer = std::is_same_v<T, std::int64_t>;

/// The type to add and multiply in: integers count modulo 2^64, as in NumPy and PyTorch.
template <class T>
using Modular = std::conditional_t<is_integer<T>, std::uint64_t, T>;

/// Base of the elementwise functors: the op's constants in the accumulation type. A functor that
/// also serves integers says so by `integers`.
template <class T>
struct Constants {
  T alpha, beta;
  static constexpr bool integers = true;

  LOCKSTEP_HD explicit Constants(const OpConstants& constants)
      : alpha(convert(constants.alpha)), beta(convert(constants.beta)) {}

 private:
  /// Integers saturate, so that clamp's infinite bounds stay harmless.
  LOCKSTEP_HD static T convert(double value) {
    if constexpr (is_integer<T>) {
      if (value >= 0x1p63) return INT64_MAX;
      if (value <= -0x1p63) return INT64_MIN;
    }
    return static_cast<T>(value);
  }
};

/// Base of the functors that serve floating types only.
template <class T>
struct FloatingConstants : Constants<T> {
  using Constants<T>::Constants;
  static constexpr bool integers = false;
};

}  // namespace lockstep::functional::inline LOCKSTEP_ISA
