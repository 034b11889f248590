#include "backend/onednn/pair_packing.hpp"

#include <algorithm>
#include <utility>

#include "lockstep/core/parallel.hpp"

namespace lockstep::backend::dnn {
namespace {

using dnnl::memory;

// A tile of so many outputs and pairs of inputs stays in the first-level cache.
constexpr std::int64_t tile_outputs = 16, tile_pairs = 8;

}  // namespace

std::optional<PairPacking> PairPacking::between(const memory::desc& user,
                                                const memory::desc& chosen) {
  using Tag = memory::format_tag;
#if DNNL_VERSION_MAJOR >= 3
  const memory::dims dims = user.get_dims();
#else
  const memory::dims dims = user.dims();
#endif
  if (dims.size() != 4) return {};
  PairPacking packing;
  packing.out_ = dims[0];
  packing.in_ = dims[1];
  packing.taps_ = dims[2] * dims[3];
  // Weights of one tap are pairs already, which oneDNN moves well.
  if (packing.taps_ == 1 || packing.in_ % 2 != 0) return {};
  const auto is = [&](const memory::desc& desc, Tag tag) {
    return desc == memory::desc(dims, memory::data_type::bf16, tag);
  };
  if (!is(user, Tag::abcd)) return {};
  for (const auto& [tag, block] : {std::pair<Tag, std::int64_t>{Tag::AcdB16a2b, 16},
                                   {Tag::AcdB32a2b, 32},
                                   {Tag::AcdB48a2b, 48},
                                   {Tag::AcdB64a2b, 64}})
    if (packing.out_ % block == 0 && is(chosen, tag)) {
      packing.block_ = block;
      return packing;
    }
  return {};
}

void PairPacking::operator()(const void* from, void* to) const {
  const std::int64_t pairs = in_ / 2, row = in_ * taps_;
  const std::int64_t across = (pairs + tile_pairs - 1) / tile_pairs;
  const std::int64_t down = out_ / tile_outputs;
  parallel_for(down * across, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t tile = begin; tile < end; ++tile) {
      // Tiles of one block of outputs follow each other.
      const std::int64_t a = tile / (across * (block_ / tile_outputs)) * block_;
      const std::int64_t within = tile % (across * (block_ / tile_outputs));
      const std::int64_t first = within / (block_ / tile_outputs) * tile_pairs;
      const std::int64_t column = within % (block_ / tile_outputs) * tile_outputs;
      for (std::int64_t p = first; p < std::min(first + tile_pairs, pairs); ++p)
        for (std::int64_t t = 0; t < taps_; ++t) {
          const auto* const source =
              static_cast<const std::uint16_t*>(from) + (a + column) * row + 2 * p * taps_ + t;
          auto* const target = static_cast<std::uint32_t*>(to) + a * pairs * taps_ +
                               (t * pairs + p) * block_ + column;
          for (std::int64_t k = 0; k < tile_outputs; ++k)
            target[k] = source[k * row] | std::uint32_t{source[k * row + taps_]} << 16;
        }
    }
  });
}

}  // namespace lockstep::backend::dnn
