#pragma once

#include <cstdint>

namespace simgpu::cublaslt {

/// Rows and columns of the tile that stays in registers.
template <class Sum>
inline constexpr int tile_rows = 64 / static_cast<int>(sizeof(Sum));
inline constexpr int tile_columns = 12;

/// sums[column * stride + row] += the product of two packed panels: `a` holds tile_rows elements a
/// step of the depth, `b` tile_columns.
void multiply_tile(std::int64_t depth, const float* a, const float* b, float* sums,
                   std::int64_t stride);
void multiply_tile(std::int64_t depth, const double* a, const double* b, double* sums,
                   std::int64_t stride);

}  // namespace simgpu::cublaslt
