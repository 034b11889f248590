#pragma once

#include <cstdint>
#include <string_view>

#include "lockstep/core/dtype.hpp"

/// @file
/// What is known of an op before it runs.

namespace lockstep {

/// Which dtypes an op takes.
enum class DTypeRule : std::uint8_t {
  any,
  numeric,   ///< all but bool
  floating,  ///< f64, f32, bf16, f16
};

/// What mixed precision does with an op's floating operands (f64 is never touched).
enum class AutocastPolicy : std::uint8_t {
  follow,           ///< nothing: runs in the operands' dtype
  lower_precision,  ///< runs in the dtype of the autocast scope: products
  f32,              ///< needs the range or precision of f32: losses, exponentials, sums
  widest,           ///< converts all to the widest operand's dtype
};

/// Whether an op's operands share a dtype.
enum class OperandDTypes : std::uint8_t { same, own };

/// An op: what messages and traces call it, what it takes, what mixed precision does with it.
/// Descriptors are constants: a recorded node refers to the name.
struct OpDescriptor {
  std::string_view name;
  DTypeRule dtypes = DTypeRule::floating;
  AutocastPolicy autocast = AutocastPolicy::follow;
  OperandDTypes operands = OperandDTypes::same;
};

/// True if a rule admits a dtype.
constexpr bool admits(DTypeRule rule, DType dtype) noexcept {
  switch (rule) {
    case DTypeRule::any: return true;
    case DTypeRule::numeric: return dtype != DType::boolean;
    case DTypeRule::floating: return is_floating(dtype);
  }
  return false;
}

}  // namespace lockstep
