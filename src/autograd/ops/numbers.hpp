#pragma once

#include <string_view>

#include "lockstep/tensor/scalar.hpp"

/// @file
/// Numbers in the arithmetic of tensors. That of integers is modulo the range of their dtype.

namespace lockstep::autograd {

/// `wrapped` for integers.
Scalar wrapped_integer(std::string_view op, DType dtype, const Scalar& number);

/// What takes the part of a number in arithmetic with a tensor: for i32 and u8 the one number of
/// their range that equals it modulo that, else the number.
/// @throws InvalidArgument where an integer dtype meets a fraction, or a number beyond 64 bits.
inline Scalar wrapped(std::string_view op, DType dtype, const Scalar& number) {
  if (is_floating(dtype) || dtype == DType::boolean) return number;
  return wrapped_integer(op, dtype, number);
}

/// True for a number that a kernel's constants, which are doubles, would round: it takes part as a
/// tensor. Narrower dtypes cannot tell it from the rounded one.
inline bool exceeds_constants(DType dtype, const Scalar& number) {
  return dtype == DType::i64 && !number.fits_double();
}

/// -number, for the constants of a kernel. Modulo 2^64 the least i64, whose negative is none, is
/// its own.
inline double negative(DType dtype, const Scalar& number) {
  const double value = number.to_double();
  return dtype == DType::i64 && value == -0x1p63 ? value : -value;
}

}  // namespace lockstep::autograd
