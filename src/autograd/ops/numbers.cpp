#include "autograd/ops/numbers.hpp"

#include <cstdint>

#include "lockstep/core/error.hpp"

namespace lockstep::autograd {

Scalar wrapped_integer(std::string_view op, DType dtype, const Scalar& number) {
  check_whole(op, dtype, number);
  const double value = number.to_double();
  LOCKSTEP_CHECK(!number.fits_double() || (value >= -0x1p63 && value < 0x1p63), InvalidArgument, op,
                 ": dtype ", dtype, " counts with numbers from -2^63 up to 2^63 - 1, got ", value,
                 "; convert the tensor with to(lockstep::DType::f64)");
  if (dtype == DType::i64) return number;
  const std::int64_t exact =
      number.fits_double() ? static_cast<std::int64_t>(value) : number.integer();
  if (dtype == DType::i32) return static_cast<std::int32_t>(exact);
  return static_cast<std::uint8_t>(exact);
}

}  // namespace lockstep::autograd
