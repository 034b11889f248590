#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "lockstep/core/op_descriptor.hpp"
#include "lockstep/core/shape.hpp"

namespace lockstep {

/// Elementwise functions of one operand, in the order of ops.def.
enum class UnaryOp : std::uint8_t {
#define LOCKSTEP_UNARY_OP(name, ...) name,
#include "functional/ops.def"
};

/// Elementwise functions of two operands, in the order of ops.def.
enum class BinaryOp : std::uint8_t {
#define LOCKSTEP_BINARY_OP(name, ...) name,
#include "functional/ops.def"
};

/// Elementwise comparisons, in the order of ops.def; the result is bool.
enum class CompareOp : std::uint8_t {
#define LOCKSTEP_COMPARE_OP(name, ...) name,
#include "functional/ops.def"
};

/// Reductions over whole dimensions, in the order of ops.def.
enum class ReduceOp : std::uint8_t {
#define LOCKSTEP_REDUCE_OP(name, ...) name,
#include "functional/ops.def"
};

/// What a reduction over no elements gives.
enum class EmptyReduction : std::uint8_t { zero, one, nan, refused };

/// What an op's backward reads.
enum class Saves : std::uint8_t { nothing, input, output, inputs };

/// One line of ops.def.
struct OpTraits : OpDescriptor {
  Saves saves;
  double low, high;  ///< domain of test inputs
};

/// All unary ops, indexed by UnaryOp.
inline constexpr OpTraits unary_ops[] = {
#define LOCKSTEP_UNARY_OP(name, Functor, saves, autocast, low, high, ...) \
  {{#name, DTypeRule::numeric, AutocastPolicy::autocast}, Saves::saves, low, high},
#include "functional/ops.def"
};

/// All binary ops, indexed by BinaryOp.
inline constexpr OpTraits binary_ops[] = {
#define LOCKSTEP_BINARY_OP(name, Functor, saves, autocast, low, high, ...) \
  {{#name, DTypeRule::numeric, AutocastPolicy::autocast}, Saves::saves, low, high},
#include "functional/ops.def"
};

/// All comparisons, indexed by CompareOp.
inline constexpr OpDescriptor compare_ops[] = {
#define LOCKSTEP_COMPARE_OP(name, autocast, ...) {#name, DTypeRule::any, AutocastPolicy::autocast},
#include "functional/ops.def"
};

/// One line of a reduction in ops.def.
struct ReduceTraits {
  std::string_view name;
  bool integers, widens;
  EmptyReduction empty;

  /// The value of no elements. @throws InvalidArgument naming the op if there is none.
  double of_nothing(const Shape& shape) const {
    LOCKSTEP_CHECK(empty != EmptyReduction::refused, InvalidArgument, name,
                   " of no elements: shape ", shape);
    if (empty == EmptyReduction::nan) return std::numeric_limits<double>::quiet_NaN();
    return empty == EmptyReduction::one ? 1.0 : 0.0;
  }
};

/// All reductions, indexed by ReduceOp.
inline constexpr ReduceTraits reduce_ops[] = {
#define LOCKSTEP_REDUCE_OP(name, integers, widens, empty) \
  {#name, integers, widens, EmptyReduction::empty},
#include "functional/ops.def"
};

/// The op's line in ops.def.
constexpr const OpTraits& traits(UnaryOp op) { return unary_ops[static_cast<int>(op)]; }
/// The op's line in ops.def.
constexpr const OpTraits& traits(BinaryOp op) { return binary_ops[static_cast<int>(op)]; }
/// The op's line in ops.def.
constexpr const OpDescriptor& traits(CompareOp op) { return compare_ops[static_cast<int>(op)]; }
/// The op's line in ops.def.
constexpr const ReduceTraits& traits(ReduceOp op) { return reduce_ops[static_cast<int>(op)]; }

/// Constants of an elementwise op: affine y = alpha * x + beta; leaky_relu and elu slope alpha;
/// clamp to [alpha, beta]; pow_scalar exponent alpha; div_scalar divisor alpha; add and sub
/// a +/- alpha * b.
struct OpConstants {
  double alpha = 1.0;
  double beta = 0.0;
};

}  // namespace lockstep
