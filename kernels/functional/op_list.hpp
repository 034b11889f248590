#pragma once

#include <cstdint>

#include "lockstep/core/op_descriptor.hpp"

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

/// Elementwise comparisons; the result is bool.
enum class CompareOp : std::uint8_t { equal, not_equal, less, less_equal, greater, greater_equal };

/// Reductions over whole dimensions.
enum class ReduceOp : std::uint8_t { sum, mean, amax, amin, square_sum };

/// What an op's backward reads.
enum class Saves : std::uint8_t { nothing, input, output, inputs };

/// One line of ops.def.
struct OpTraits : OpDescriptor {
  Saves saves;
  double low, high;  ///< domain of test inputs
};

/// All unary ops, indexed by UnaryOp.
inline constexpr OpTraits unary_ops[] = {
#define LOCKSTEP_UNARY_OP(name, Functor, saves, autocast, low, high) \
  {{#name, DTypeRule::numeric, AutocastPolicy::autocast}, Saves::saves, low, high},
#include "functional/ops.def"
};

/// All binary ops, indexed by BinaryOp.
inline constexpr OpTraits binary_ops[] = {
#define LOCKSTEP_BINARY_OP(name, Functor, saves, autocast, low, high) \
  {{#name, DTypeRule::numeric, AutocastPolicy::autocast}, Saves::saves, low, high},
#include "functional/ops.def"
};

/// The op's line in ops.def.
constexpr const OpTraits& traits(UnaryOp op) { return unary_ops[static_cast<int>(op)]; }
/// The op's line in ops.def.
constexpr const OpTraits& traits(BinaryOp op) { return binary_ops[static_cast<int>(op)]; }

/// Constants of an elementwise op: affine y = alpha * x + beta; leaky_relu and elu slope alpha;
/// clamp to [alpha, beta]; pow_scalar exponent alpha; div_scalar divisor alpha; add and sub
/// a +/- alpha * b.
struct OpConstants {
  double alpha = 1.0;
  double beta = 0.0;
};

}  // namespace lockstep
