#pragma once

#include <cstdint>

#include "lockstep/core/bfloat16.hpp"

/// @file
/// The inner loops of blocked attention over bf16 operands, by instructions that multiply pairs of
/// bf16 and add both products to an f32 sum. Scores lie as in attention_kernels.hpp: [keys,
/// queries], queries in vector lanes. What is summed over lies in pairs: a matrix that is summed
/// over its columns as it is, one that is summed over its rows with each two rows interleaved.

namespace lockstep::cpu_kernels {

/// Two neighbours in the dimension that is summed over, the first in the lower half.
using Pair = std::uint32_t;

/// Units to which all extents here are filled up with zeros.
constexpr std::int64_t pair_columns = 32;  ///< columns of any matrix, queries of a block
constexpr std::int64_t pair_rows = 8;      ///< rows of a register tile

/// c [rows, columns] = scale * a [rows, depth] @ b [depth, columns], or += with `accumulate`.
/// Element (i, p) of a is at a[i * a_row + p * a_column]; rows of b and c are contiguous.
struct PairProduct {
  float* c;
  std::int64_t c_row;
  const Pair* a;
  std::int64_t a_row, a_column;
  const Pair* b;
  std::int64_t b_row;
  std::int64_t rows, columns;
  std::int64_t depth;  ///< in pairs
  float scale = 1;
  bool accumulate = false;
};

/// Scores of a block of queries against `keys` keys, [keys, queries].
struct PairScores {
  float* data;
  std::int64_t keys, queries;
};

/// The loops where the machine has such instructions.
struct Bf16AttentionLoops {
  void (*multiply)(const PairProduct& product);
  /// to [count, columns] = rows of `used` elements, `row` apart, filled up with zeros.
  void (*copy_rows)(Pair* to, std::int64_t columns, const BFloat16* from, std::int64_t row,
                    std::int64_t used, std::int64_t count);
  /// to [rows / 2, columns] = each two rows of from [rows, columns] interleaved; rows is even.
  void (*interleave)(Pair* to, const Pair* from, std::int64_t rows, std::int64_t columns);
  /// to = scale * from, rounded.
  void (*round)(BFloat16* to, const float* from, float scale, std::int64_t count);
  /// p [keys / 2, queries] = exp(score - largest of the query), rounded, each two keys interleaved,
  /// the last of an odd number with zero. Also writes the sums in f32 and the largest; a query
  /// whose scores are all minus infinity gets zeros, sum 0 and largest 0.
  void (*softmax)(Pair* p, const PairScores& scores, float* largest, float* sum);
  /// From scores and the gradients of probabilities: p = exp(score - lse[query]) and the gradients
  /// of scores, p * (dp - sum over keys of p dp), both rounded. Rows of p and ds are [keys,
  /// queries] with zeros up to whole register tiles; `ds_pairs` has each two keys interleaved.
  /// Overwrites the scores.
  void (*score_gradients)(Pair* p, Pair* ds, Pair* ds_pairs, const PairScores& scores,
                          const float* dp, const float* lse);
};

/// The loops, or null where the instruction set in use (cpu_kernels::isa_name) is not AVX-512 or
/// the machine has no bf16 products.
const Bf16AttentionLoops* bf16_attention_loops();

}  // namespace lockstep::cpu_kernels
