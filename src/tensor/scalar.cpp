#include "lockstep/tensor/scalar.hpp"

#include <cmath>
#include <limits>

#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

/// The range of an integer dtype; both bounds are doubles, the upper one is beyond the range.
struct Range {
  double least, beyond;
};

Range range_of(DType dtype) {
  if (dtype == DType::u8) return {0, 256};
  if (dtype == DType::i32) return {-0x1p31, 0x1p31};
  return {-0x1p63, 0x1p63};
}

}  // namespace

void check_whole(std::string_view op, DType dtype, const Scalar& value) {
  const double number = value.to_double();
  LOCKSTEP_CHECK(is_floating(dtype) || number == std::floor(number), InvalidArgument, op,
                 ": dtype ", dtype, " takes whole numbers, got ", number,
                 "; convert the tensor with to(lockstep::DType::f32)");
}

bool holds_whole(DType dtype, double number) noexcept {
  if (dtype == DType::boolean) return number == 0 || number == 1;
  const Range range = range_of(dtype);
  return number >= range.least && number < range.beyond;
}

void check_holds(std::string_view op, DType dtype, const Scalar& value) {
  if (is_floating(dtype) || dtype == DType::boolean) return;
  check_whole(op, dtype, value);
  const Range range = range_of(dtype);
  // An i64 that no double is may round to the bound, and is in range all the same.
  LOCKSTEP_CHECK((value.to_double() >= range.least && value.to_double() < range.beyond) ||
                     (dtype == DType::i64 && !value.fits_double()),
                 InvalidArgument, op, ": dtype ", dtype, " ends at ", range.least, " and ",
                 range.beyond - 1, ", got ", value.to_double(), "; use a wider dtype");
}

}  // namespace lockstep
