#include "backend/onednn/attention_blocks.hpp"

#include <array>
#include <bit>
#include <limits>

#include "cpu/typed_row.hpp"
#include "lockstep/core/macros.hpp"

namespace lockstep::backend {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr std::int64_t mask_tile = 64;  // queries and keys of a part, at least a block's queries

/// What the mask holds for a query and some keys; a boolean one as bits, all set where it is true.
void load_mask(float* to, const ArrayView& mask, std::int64_t at, std::int64_t keys) {
  const std::int64_t stride = mask.strides[3];
  if (mask.dtype != DType::boolean) return cpu_kernels::load_row(to, mask, at, stride, keys);
  const bool* const visible = mask.as<const bool>() + at;
  for (std::int64_t s = 0; s < keys; ++s)
    to[s] = std::bit_cast<float>(0u - static_cast<std::uint32_t>(visible[s * stride]));
}

/// The score where all bits are set, and minus infinity where none is: without a branch.
LOCKSTEP_ALWAYS_INLINE float visible_score(float score, float bits) {
  const auto visible = std::bit_cast<std::uint32_t>(bits);
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(score) & visible) |
                              (std::bit_cast<std::uint32_t>(-infinity) & ~visible));
}

/// Calls `visit(score, mask)` for all queries of the block and keys [first, first + keys). Rows of
/// a mask are queries and those of scores keys, so it is transposed, a tile at a time.
template <class Visit>
LOCKSTEP_ALWAYS_INLINE void for_each_masked(const Block& scores, const QueryBlock& b,
                                            const ArrayView& mask, std::int64_t first,
                                            std::int64_t keys, const Visit& visit) {
  alignas(64) std::array<float, mask_tile * mask_tile> rows{}, columns;
  const auto& strides = mask.strides;
  for (std::int64_t t = 0; t < b.count; ++t)
    load_mask(rows.data() + t * mask_tile, mask,
              b.n * strides[0] + b.h * strides[1] + (b.first + t) * strides[2] + first * strides[3],
              keys);
  cpu_kernels::attention_loops().transpose(columns.data(), rows.data(), mask_tile, mask_tile);
  for (std::int64_t s = 0; s < keys; ++s) {
    float* const row = scores.row(first + s);
    const float* const column = columns.data() + s * mask_tile;
    for (std::int64_t t = 0; t < b.count; ++t) visit(row[t], column[t]);
  }
}

}  // namespace

void apply_mask(const Block& scores, const QueryBlock& b, const ArrayView& mask, bool causal) {
  if (causal)
    for (std::int64_t s = b.first + 1; s < b.keys; ++s)
      std::fill_n(scores.row(s), std::min(s - b.first, b.count), -infinity);
  if (!mask) return;
  for (std::int64_t s = 0; s < b.keys; s += mask_tile) {
    const std::int64_t keys = std::min(mask_tile, b.keys - s);
    if (mask.dtype == DType::boolean)
      for_each_masked(scores, b, mask, s, keys,
                      [](float& score, float bits) { score = visible_score(score, bits); });
    else
      for_each_masked(scores, b, mask, s, keys, [](float& score, float added) { score += added; });
  }
}

void load_totals(float* to, const ArrayView& lse, const QueryBlock& b, const Extents& e) {
  const float* const totals = lse.as<const float>() + (b.n * lse.shape[1] + b.h) * e.queries;
  for (std::int64_t t = 0; t < e.block; ++t) {
    const float total = t < b.count ? totals[b.first + t] : infinity;
    to[t] = total == -infinity ? infinity : total;
  }
}

}  // namespace lockstep::backend
