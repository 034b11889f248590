#include "backend/onednn/attention_blocks.hpp"

#include <limits>

#include "cpu/typed_row.hpp"

namespace lockstep::backend {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

}  // namespace

void apply_mask(const Block& scores, const QueryBlock& b, const ArrayView& mask, bool causal) {
  if (causal)
    for (std::int64_t s = b.first + 1; s < b.keys; ++s)
      std::fill_n(scores.row(s), std::min(s - b.first, b.count), -infinity);
  if (!mask) return;
  const auto& strides = mask.strides;
  for (std::int64_t t = 0; t < b.count; ++t) {
    const std::int64_t at = b.n * strides[0] + b.h * strides[1] + (b.first + t) * strides[2];
    if (mask.dtype == DType::boolean) {
      const bool* visible = mask.as<const bool>() + at;
      for (std::int64_t s = 0; s < b.keys; ++s)
        if (!visible[s * strides[3]]) scores.row(s)[t] = -infinity;
    } else {
      for (std::int64_t s = 0; s < b.keys; ++s) {
        float added;
        cpu_kernels::load_row(&added, mask, at + s * strides[3], 1, 1);
        scores.row(s)[t] += added;
      }
    }
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
