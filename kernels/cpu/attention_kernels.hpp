#pragma once

#include <cstdint>

/// @file
/// The inner loops of blocked attention, in float. A block of queries has its scores against all
/// keys as [keys, queries]: queries lie in vector lanes, so that maxima and sums over keys need no
/// steps across lanes, and no product needs a packed operand.

namespace lockstep::cpu_kernels {

/// A matrix operand; element (i, j) is at data[i * row + j * column].
struct StridedMatrix {
  const float* data;
  std::int64_t row, column;
};

/// c [rows, columns] = a [rows, depth] @ b [depth, columns], or += with `accumulate`.
/// b and c have contiguous rows; rows is a multiple of `row_unit`, columns of `lanes`.
struct TileProduct {
  float* c;
  std::int64_t c_row;
  StridedMatrix a;
  const float* b;
  std::int64_t b_row;
  std::int64_t rows, columns, depth;
  bool accumulate = false;
};

/// Scores of a block of queries; `queries` is a multiple of `lanes`.
struct ScoreBlock {
  float* data;
  std::int64_t keys, queries;
};

/// The loops for one instruction set.
struct AttentionLoops {
  int lanes;     ///< floats of a vector
  int row_unit;  ///< rows of a register tile
  void (*multiply)(const TileProduct& product);
  /// to [columns, rows] = transpose of from [rows, columns]; both extents are multiples of lanes.
  void (*transpose)(float* to, const float* from, std::int64_t rows, std::int64_t columns);
  /// Replaces scores by exp(score - largest of the query) and writes their sum and that largest; a
  /// query whose scores are all minus infinity gets zeros, sum 0 and largest 0.
  void (*softmax)(const ScoreBlock& scores, float* largest, float* sum);
  /// Replaces scores by exp(score - lse[query]).
  void (*probabilities)(const ScoreBlock& scores, const float* lse);
  /// Replaces the gradients of probabilities by those of scores, p * (dp - sum over keys of p dp).
  void (*score_gradients)(const ScoreBlock& gradients, const float* probabilities);
};

/// The loops of the instruction set in use (cpu_kernels::isa_name).
const AttentionLoops& attention_loops();

}  // namespace lockstep::cpu_kernels
