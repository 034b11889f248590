#pragma once

#include <cstdint>
#include <ostream>

/// @file
/// How collectives combine the ranks' elements.

namespace lockstep::comm {

/// The arithmetic of a reduction.
enum class ReduceKind : std::uint8_t { sum, average, min, max, product, scaled_sum };

/// A reduction over ranks. Sums of bf16 and f16 accumulate in f32 on every backend that runs on
/// the host, and round once.
struct ReduceOp {
  ReduceKind kind = ReduceKind::sum;
  /// With scaled_sum: each rank's own elements are multiplied by it first. May differ by rank.
  double factor = 1.0;

  /// x0 + x1 + ...
  static constexpr ReduceOp sum() { return {}; }
  /// The sum divided by the number of ranks; integers round towards zero. Over NCCL the sum of
  /// integers is one of their dtype, and wraps; on the host it does not.
  static constexpr ReduceOp average() { return {ReduceKind::average}; }
  /// The smallest. With a NaN: that, on the host; over NCCL the numbers win.
  static constexpr ReduceOp min() { return {ReduceKind::min}; }
  /// The largest. With a NaN: that, on the host; over NCCL the numbers win.
  static constexpr ReduceOp max() { return {ReduceKind::max}; }
  /// x0 * x1 * ...
  static constexpr ReduceOp product() { return {ReduceKind::product}; }
  /// factor0 * x0 + factor1 * x1 + ...: weighted averages in one pass. Floating dtypes only.
  static constexpr ReduceOp scaled_sum(double factor) { return {ReduceKind::scaled_sum, factor}; }
};

/// Writes "sum", "average", ...
inline std::ostream& operator<<(std::ostream& out, ReduceKind kind) {
  constexpr const char* names[] = {"sum", "average", "min", "max", "product", "scaled_sum"};
  return out << names[static_cast<int>(kind)];
}

}  // namespace lockstep::comm
