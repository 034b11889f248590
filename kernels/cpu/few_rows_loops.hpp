#pragma once

#include <cstdint>

/// @file
/// Loops of products of a few rows.

namespace lockstep::cpu_kernels {

/// Operands in f32: rows of a are contiguous, and so are either columns of b or its rows.
struct FewRows {
  float* sums;  ///< [rows, columns]
  std::int64_t sums_row;
  const float* a;
  std::int64_t a_row;
  const float* b;
  std::int64_t b_stride;  ///< between its columns, or its rows
  std::int64_t columns, depth;
};

/// By the number of rows, less one.
struct FewRowsLoops {
  static constexpr std::size_t most_rows = 8;
  using Loop = void (*)(const FewRows& operands);

  Loop along_depth[most_rows] = {};    ///< writes the sums; columns of b are contiguous
  Loop along_columns[most_rows] = {};  ///< adds to the sums; rows of b are contiguous
};

}  // namespace lockstep::cpu_kernels
