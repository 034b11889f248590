#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

#include "lockstep/core/dtype.hpp"

/// @file
/// Numbers given to ops.

namespace lockstep {

/// A number beside a tensor. What is given as an integer stays one, so that an i64 tensor meets
/// exactly this number, also past 2^53, where a double has gaps.
class Scalar {
 public:
  /// Any number of C++.
  template <class Number>
  requires std::is_arithmetic_v<Number>
  constexpr Scalar(Number value) noexcept
      : value_(static_cast<double>(value)) {  // NOLINT: implicit
    if constexpr (std::is_integral_v<Number>) {
      integral_ = std::is_signed_v<Number> || static_cast<std::uint64_t>(value) >> 63 == 0;
      if (integral_) integer_ = static_cast<std::int64_t>(value);
    }
  }

  /// The number, rounded where no double is it.
  constexpr double to_double() const noexcept { return value_; }
  /// True if a double is the number that was given.
  constexpr bool fits_double() const noexcept {
    return !integral_ || (value_ < 0x1p63 && static_cast<std::int64_t>(value_) == integer_);
  }
  /// The number given as an integer; for those that do not fit a double.
  constexpr std::int64_t integer() const noexcept { return integer_; }

 private:
  double value_;
  std::int64_t integer_ = 0;
  bool integral_ = false;
};

/// Whether an integer dtype, or bool, has this whole number.
bool holds_whole(DType dtype, double number) noexcept;
/// @throws InvalidArgument where an integer dtype cannot be this number: a fraction, or past its
/// range. bool takes all, for what is not 0 is true.
void check_holds(std::string_view op, DType dtype, const Scalar& value);
/// @throws InvalidArgument for a fraction where the dtype is no floating one.
void check_whole(std::string_view op, DType dtype, const Scalar& value);

}  // namespace lockstep
