#include "cpu/tile_products.hpp"

#include <algorithm>

#include "cpu/attention_kernels.hpp"

#if defined(__x86_64__)
// GCC 12 warns of its own intrinsics: what they leave undefined is never read (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

namespace lockstep::cpu_kernels {
namespace {

constexpr std::int64_t most_steps =
    16;  // packed steps of both operands stay in the first-level cache
constexpr std::int64_t step_pairs = step_bytes / 4;
constexpr std::int64_t tile_elements = tile_bytes / 4;  // pairs, or sums

/// A block of 32 x 32 sums over some steps of the depth.
struct Block {
  std::int64_t row, column, first, pairs;  ///< the last two in the depth, in pairs

  std::int64_t steps() const { return (pairs + tile_pairs - 1) / tile_pairs; }
};

/// Copies `rows` rows of up to 16 pairs and fills the tile up with zeros.
LOCKSTEP_TILE_INLINE void copy_tile(Pair* to, const Pair* from, std::int64_t row, std::int64_t rows,
                                    std::int64_t columns) {
  const auto mask = static_cast<__mmask16>((1u << std::min(columns, tile_side)) - 1);
  for (std::int64_t i = 0; i < tile_side; ++i, to += tile_side)
    _mm512_store_si512(
        to, i < rows ? _mm512_maskz_loadu_epi32(mask, from + i * row) : _mm512_setzero_si512());
}

/// The rows of a of a block: as they lie where they fill tiles, else packed.
LOCKSTEP_TILE_INLINE TileSource rows_of(const PairProduct& t, const Block& b, Pair* packed) {
  const Pair* const from = t.a + b.row * t.a_row + b.first * t.a_column;
  const std::int64_t rows = t.rows - b.row;
  if (t.a_column == 1 && rows >= block_side && b.pairs % tile_pairs == 0)
    return {from, t.a_row * 4, tile_side * 4, tile_side * t.a_row * 4};
  for (std::int64_t s = 0; s < b.steps(); ++s)
    for (int half = 0; half < 2; ++half) {
      Pair* const to = packed + s * step_pairs + half * tile_elements;
      const std::int64_t row = half * tile_side, pair = s * tile_pairs;
      if (t.a_column == 1) {
        copy_tile(to, from + row * t.a_row + pair, t.a_row, rows - row, b.pairs - pair);
        continue;
      }
      alignas(64) Pair turned[tile_elements];
      copy_tile(turned, from + row + pair * t.a_column, t.a_column, b.pairs - pair,
                std::max<std::int64_t>(rows - row, 0));
      attention_loops().transpose(reinterpret_cast<float*>(to),
                                  reinterpret_cast<const float*>(turned), tile_side, tile_side);
    }
  return {packed, 64, step_bytes, tile_bytes};
}

/// The columns of b of a block, likewise.
LOCKSTEP_TILE_INLINE TileSource columns_of(const PairProduct& t, const Block& b, Pair* packed) {
  const Pair* const from = t.b + b.first * t.b_row + b.column;
  if (b.pairs % tile_pairs == 0)
    return {from, t.b_row * 4, tile_pairs * t.b_row * 4, tile_side * 4};
  for (std::int64_t s = 0; s < b.steps(); ++s)
    for (int half = 0; half < 2; ++half)
      copy_tile(packed + s * step_pairs + half * tile_elements,
                from + s * tile_pairs * t.b_row + half * tile_side, t.b_row,
                b.pairs - s * tile_pairs, tile_side);
  return {packed, 64, step_bytes, tile_bytes};
}

/// c = scale * sums, or +=, for the rows that there are.
LOCKSTEP_TILE_INLINE void store_scaled(const PairProduct& t, const Block& b, const float* sums,
                                       bool add) {
  const __m512 scale = _mm512_set1_ps(t.scale);
  for (std::int64_t i = 0; i < std::min(block_side, t.rows - b.row); ++i)
    for (std::int64_t j = 0; j < block_side; j += tile_side) {
      float* const to = t.c + (b.row + i) * t.c_row + b.column + j;
      const __m512 before = add ? _mm512_loadu_ps(to) : _mm512_setzero_ps();
      _mm512_storeu_ps(to,
                       _mm512_fmadd_ps(_mm512_load_ps(sums + i * block_side + j), scale, before));
    }
}

LOCKSTEP_TILE_INLINE void multiply_block(const PairProduct& t, const Block& b,
                                         const TileSource& rows, Pair* packed) {
  const TileSource columns = columns_of(t, b, packed);
  const bool add = t.accumulate || b.first > 0;
  const bool in_place = t.scale == 1 && t.rows - b.row >= block_side;
  float* const c = t.c + b.row * t.c_row + b.column;
  if (add && in_place)
    load_sums(c, t.c_row);
  else
    clear_sums();
  add_products(rows, columns, b.steps());
  if (in_place) return store_sums(c, t.c_row);
  alignas(64) float sums[block_side * block_side];
  store_sums(sums, block_side);
  store_scaled(t, b, sums, add);
}

}  // namespace

LOCKSTEP_TILE_TARGET void multiply_in_tiles(const PairProduct& t) {
  const TileRegisters registers;
  alignas(64) Pair a[most_steps * step_pairs], b[most_steps * step_pairs];
  for (std::int64_t p = 0; p == 0 || p < t.depth; p += most_steps * tile_pairs)
    for (std::int64_t i = 0; i < t.rows; i += block_side) {
      Block block{i, 0, p, std::min(most_steps * tile_pairs, t.depth - p)};
      const TileSource rows = rows_of(t, block, a);
      for (; block.column < t.columns; block.column += block_side)
        multiply_block(t, block, rows, b);
    }
}

}  // namespace lockstep::cpu_kernels
#endif
