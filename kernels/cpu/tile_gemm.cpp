#include "cpu/tile_gemm.hpp"

#include <algorithm>
#include <utility>

#include "cpu/attention_kernels.hpp"
#include "cpu/bf16_attention.hpp"
#include "cpu/loops.hpp"
#include "cpu/scratch.hpp"
#include "cpu/tile_registers.hpp"
#include "cpu/typed_row.hpp"
#include "lockstep/core/parallel.hpp"

#if defined(__x86_64__)
// GCC 12 warns of its own intrinsics: what they leave undefined is never read (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace lockstep::cpu_kernels {

#if defined(__x86_64__)

namespace {

using kernels::Epilogue;
using kernels::GemmArguments;

// Below these oneDNN's primitives, or none, are as fast: few multiply-adds; half a panel's rows or
// columns, and what was packed, used once; results that take longer to be stored than computed; and
// beyond the last, sums so long that they are worth being cut among threads.
constexpr std::int64_t least_work = std::int64_t{1} << 20;
constexpr std::int64_t least_side = 64, least_area = 4096, most_depth_of_side = 32;
constexpr std::int64_t most_whole = std::int64_t{1} << 25;  // elements of the operand packed whole
// A block of the depth of a panel of b stays in the first-level cache, one of all that is packed
// part by part, with the sums of a chunk, in the second. Fixed: the order of additions depends on
// them alone.
constexpr std::int64_t inner_steps = 8, outer_steps = 64;
constexpr std::int64_t kept_panels = 2;
constexpr std::int64_t most_panels = 4, most_chunk_panels = 16, least_chunk_panels = 4;

constexpr std::int64_t step_depth = 2 * tile_pairs;
constexpr std::int64_t step_elements = step_bytes / 2;

std::int64_t parts_of(std::int64_t count, std::int64_t size) { return (count + size - 1) / size; }

/// A factor of the product, as a matrix of `count` rows of a, or columns of b, by `depth`.
struct Factor {
  const BFloat16* data;
  std::int64_t outer;  ///< from one row of a, or column of b, to the next; it or `inner` is 1
  std::int64_t inner;  ///< from one element of the depth to the next
  std::int64_t count, depth;
  bool is_b;

  std::int64_t panels() const { return parts_of(count, block_side); }
  std::int64_t steps() const { return parts_of(depth, step_depth); }
};

/// Reads one step of a panel: of either tile 16 rows of pairs, filled up with zeros. By itself a
/// factor whose depth is contiguous gives tiles of a, one whose rows or columns are those of b.
LOCKSTEP_TILE_INLINE void load_step(std::uint32_t* to, const Factor& f, std::int64_t first,
                                    std::int64_t step) {
  const std::int64_t count = std::min(block_side, f.count - first);
  const std::int64_t depth = std::min(step_depth, f.depth - step * step_depth);
  const BFloat16* const from = f.data + first * f.outer + step * step_depth * f.inner;
  if (f.inner == 1) {
    const auto mask = static_cast<__mmask32>((std::uint64_t{1} << depth) - 1);
    for (std::int64_t i = 0; i < count; ++i)
      _mm512_store_si512(to + i * tile_pairs, _mm512_maskz_loadu_epi16(mask, from + i * f.outer));
    for (std::int64_t i = count; i < block_side; ++i)
      _mm512_store_si512(to + i * tile_pairs, _mm512_setzero_si512());
    return;
  }
  const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8,
                                       39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
  const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(tile_side));
  const auto mask = static_cast<__mmask32>((std::uint64_t{1} << count) - 1);
  for (std::int64_t p = 0; p < tile_pairs; ++p) {
    const __m512i zero = _mm512_setzero_si512();
    const __m512i even =
        2 * p < depth ? _mm512_maskz_loadu_epi16(mask, from + 2 * p * f.inner) : zero;
    const __m512i odd =
        2 * p + 1 < depth ? _mm512_maskz_loadu_epi16(mask, from + (2 * p + 1) * f.inner) : zero;
    _mm512_store_si512(to + p * tile_side, _mm512_permutex2var_epi16(even, low, odd));
    _mm512_store_si512(to + (tile_pairs + p) * tile_side,
                       _mm512_permutex2var_epi16(even, high, odd));
  }
}

/// Panels of a factor that follow each other, with the same steps of the depth each.
struct Panels {
  BFloat16* data;
  std::int64_t count, steps;  ///< `steps`: from panel to panel

  BFloat16* step(std::int64_t panel, std::int64_t s) const {
    return data + (panel * steps + s) * step_elements;
  }
  LOCKSTEP_TILE_INLINE TileSource at(std::int64_t panel, std::int64_t s) const {
    return {step(panel, s), 64, step_bytes, tile_bytes};
  }
};

/// Packs steps [begin, end) of the panels of `to`, of which the first is at row or column `first`.
LOCKSTEP_TILE_TARGET void pack(const Panels& to, const Factor& f, std::int64_t first,
                               std::int64_t begin, std::int64_t end) {
  const bool as_it_lies = f.is_b == (f.inner != 1);
  alignas(64) std::uint32_t turned[step_bytes / 4];
  for (std::int64_t s = begin; s < end; ++s)
    for (std::int64_t i = 0; i < to.count; ++i) {
      auto* const tiles = reinterpret_cast<std::uint32_t*>(to.step(i, s - begin));
      load_step(as_it_lies ? tiles : turned, f, first + i * block_side, s);
      if (as_it_lies) continue;
      for (int half = 0; half < 2; ++half) {
        const std::int64_t at = half * tile_bytes / 4;
        attention_loops().transpose(reinterpret_cast<float*>(tiles + at),
                                    reinterpret_cast<const float*>(turned + at), tile_side,
                                    tile_pairs);
      }
    }
}

/// sums [a's rows, b's columns] += a @ b over `steps` steps, or = where they are the first.
LOCKSTEP_TILE_TARGET void multiply(float* sums, const Panels& a, const Panels& b,
                                   std::int64_t steps, bool is_first) {
  const TileRegisters registers;
  const std::int64_t row = b.count * block_side;
  for (std::int64_t s = 0; s < steps; s += inner_steps)
    for (std::int64_t i = 0; i < a.count; i += kept_panels)
      for (std::int64_t j = 0; j < b.count; ++j)
        for (std::int64_t k = i; k < std::min(i + kept_panels, a.count); ++k) {
          float* const block = sums + k * block_side * row + j * block_side;
          if (is_first && s == 0)
            clear_sums();
          else
            load_sums(block, row);
          add_products(a.at(k, s), b.at(j, s), std::min(inner_steps, steps - s));
          store_sums(block, row);
        }
}

LOCKSTEP_TILE_INLINE __m512 load_some(__mmask16 mask, const float* from) {
  return _mm512_maskz_loadu_ps(mask, from);
}
LOCKSTEP_TILE_INLINE __m512 load_some(__mmask16 mask, const BFloat16* from) {
  const __m512i words = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
}

/// to += factor * from
template <class T>
LOCKSTEP_TILE_TARGET void add_row(float* to, const T* from, float factor, std::int64_t count) {
  const __m512 by = _mm512_set1_ps(factor);
  for (std::int64_t i = 0; i < count; i += tile_side) {
    const auto mask = static_cast<__mmask16>((1u << std::min(count - i, tile_side)) - 1);
    const __m512 sum = _mm512_fmadd_ps(by, load_some(mask, from + i), load_some(mask, to + i));
    _mm512_mask_storeu_ps(to + i, mask, sum);
  }
}

/// A rectangle of the product's result.
struct Area {
  std::int64_t row, column, rows, columns;
};

/// A call, and how it is cut.
class TileGemm {
 public:
  explicit TileGemm(const GemmArguments& call)
      : call_(call),
        a_(factor(call.a, 1, false)),
        b_(factor(call.b, 2, true)),
        turned_(a_.inner != 1 && b_.inner != 1 && a_.count > b_.count &&
                call.epilogue == Epilogue::none) {
    if (turned_) {
      std::swap(a_, b_);
      a_.is_b = false;
      b_.is_b = true;
    }
    whole_is_b_ = b_.count < a_.count || (b_.count == a_.count && a_.inner == 1);
    cut();
  }

  /// The operand that is packed at once, the smaller one.
  const Factor& whole() const { return whole_is_b_ ? b_ : a_; }

  void run() const {
    const std::int64_t steps = whole().steps();
    static thread_local Scratch scratch;
    const Panels packed{
        scratch.get<BFloat16>(static_cast<std::size_t>(whole().panels() * steps * step_elements)),
        whole().panels(), steps};
    parallel_for(packed.count, 1, [&](std::int64_t begin, std::int64_t end) {
      pack({packed.step(begin, 0), end - begin, steps}, whole(), begin * block_side, 0, steps);
    });
    parallel_for(parts() * groups_, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        run_part(packed, i / groups_ * panels_, i % groups_);
    });
  }

 private:
  static Factor factor(const ArrayView& view, int outer, bool is_b) {
    return {view.as<const BFloat16>(), view.strides[outer],   view.strides[3 - outer],
            view.shape[outer],         view.shape[3 - outer], is_b};
  }
  const Factor& part() const { return whole_is_b_ ? a_ : b_; }
  std::int64_t parts() const { return parts_of(part().panels(), panels_); }
  std::int64_t chunks() const { return parts_of(whole().panels(), chunk_panels_); }

  /// Into two pieces of work a thread, of which each packs its part; so in few of them for each.
  void cut() {
    panels_ = std::min(most_panels, part().panels());
    chunk_panels_ = std::min(most_chunk_panels, whole().panels());
    const std::int64_t wanted = num_threads() == 1 ? 1 : 2 * num_threads();
    while (parts() * groups_ < wanted) {
      if (groups_ < chunks())
        groups_ = std::min(2 * groups_, chunks());
      else if (chunk_panels_ > least_chunk_panels)
        chunk_panels_ = parts_of(chunk_panels_, 2);
      else if (panels_ > 1)
        panels_ = parts_of(panels_, 2);
      else
        break;
    }
  }

  /// Panels [first, first + panels_) of the operand that is packed part by part, by those of a
  /// group of chunks.
  void run_part(const Panels& whole, std::int64_t first, std::int64_t group) const {
    const std::int64_t count = std::min(panels_, part().panels() - first), steps = whole.steps;
    const std::int64_t block = std::min(outer_steps, steps);
    const std::int64_t sums = count * chunk_panels_ * block_side * block_side;
    const std::int64_t longest = std::max(count, chunk_panels_) * block_side;
    static thread_local Scratch scratch;
    auto* const memory = scratch.get<float>(static_cast<std::size_t>(
        count * block * step_elements / 2 + (turned_ ? 2 : 1) * sums + 2 * longest));
    const Panels own{reinterpret_cast<BFloat16*>(memory), count, block};
    Rows rows;
    rows.sums = memory + count * block * step_elements / 2;
    rows.turned = turned_ ? rows.sums + sums : rows.sums;
    rows.bias = rows.turned + sums;
    rows.spare = rows.bias + longest;
    std::int64_t packed = -1;
    const std::int64_t in_group = parts_of(chunks(), groups_) * chunk_panels_;
    const std::int64_t last = std::min((group + 1) * in_group, whole.count);
    for (std::int64_t chunk = group * in_group; chunk < last; chunk += chunk_panels_) {
      const std::int64_t others = std::min(chunk_panels_, whole.count - chunk);
      for (std::int64_t s = 0; s < steps; s += outer_steps) {
        const std::int64_t end = std::min(s + outer_steps, steps);
        if (packed != s) pack(own, part(), first * block_side, s, end);
        packed = s;
        const Panels chunk_of_whole{whole.step(chunk, s), others, steps};
        if (whole_is_b_)
          multiply(rows.sums, own, chunk_of_whole, end - s, s == 0);
        else
          multiply(rows.sums, chunk_of_whole, own, end - s, s == 0);
      }
      finish(rows, whole_is_b_ ? Span{first, count} : Span{chunk, others},
             whole_is_b_ ? Span{chunk, others} : Span{first, count});
    }
  }

  /// Panels that follow each other.
  struct Span {
    std::int64_t first, count;
  };
  /// The working memory of a part.
  struct Rows {
    float *sums, *turned, *bias, *spare;
  };

  /// Writes the sums of panels of a and b.
  void finish(const Rows& memory, const Span& a, const Span& b) const {
    float* sums = memory.sums;
    Span rows = a, columns = b;
    if (turned_) {
      attention_loops().transpose(memory.turned, memory.sums, a.count * block_side,
                                  b.count * block_side);
      sums = memory.turned;
      std::swap(rows, columns);
    }
    const ArrayView& out = call_.out;
    const Area area{
        rows.first * block_side, columns.first * block_side,
        std::min(rows.count * block_side, out.shape[1] - rows.first * block_side),
        std::min(columns.count * block_side, out.shape[2] - columns.first * block_side)};
    const bool add_bias = call_.epilogue == Epilogue::bias || call_.epilogue == Epilogue::gelu_bias;
    if (add_bias)
      load_row(memory.bias, call_.bias, area.column * call_.bias.strides[0], call_.bias.strides[0],
               area.columns);
    for (std::int64_t i = 0; i < area.rows; ++i) {
      float* const row = sums + i * columns.count * block_side;
      if (add_bias) add_row(row, memory.bias, 1, area.columns);
      finish_row(row, memory.spare, area, area.row + i);
    }
  }

  /// What happens to a row behind the bias.
  void finish_row(float* sums, float* spare, const Area& area, std::int64_t row) const {
    const auto store = [&](const ArrayView& to, std::int64_t at) {
      if (to.dtype == DType::bf16)
        bf16_attention_loops()->round(to.as<BFloat16>() + at, sums, 1, area.columns);
      else
        std::copy_n(sums, area.columns, to.as<float>() + at);
    };
    const ArrayView& out = call_.out;
    const std::int64_t aux_at = row * out.shape[2] + area.column;
    if (call_.epilogue == Epilogue::gelu_bias) {
      if (call_.aux) store(call_.aux, aux_at);
      loops().unary(Accumulate::f32, UnaryOp::gelu_tanh)(sums, sums, area.columns, {});
    }
    if (call_.epilogue == Epilogue::dgelu) {
      load_row(spare, call_.aux, aux_at, 1, area.columns);
      loops().unary_backward(Accumulate::f32, UnaryOp::gelu_tanh)(sums, sums, spare, area.columns,
                                                                  {});
    }
    if (call_.beta != 0) {
      const ArrayView& before = call_.addend ? call_.addend : out;
      const std::int64_t at = row * before.strides[1] + area.column * before.strides[2];
      const auto beta = static_cast<float>(call_.beta);
      if (before.strides[2] != 1) {
        load_row(spare, before, at, before.strides[2], area.columns);
        add_row(sums, spare, beta, area.columns);
      } else if (before.dtype == DType::bf16) {
        add_row(sums, before.as<const BFloat16>() + at, beta, area.columns);
      } else {
        add_row(sums, before.as<const float>() + at, beta, area.columns);
      }
    }
    store(out, row * out.strides[1] + area.column);
  }

  GemmArguments call_;
  Factor a_, b_;
  bool turned_;  // the result is computed transposed
  bool whole_is_b_;
  std::int64_t panels_ = 1;        // of a part
  std::int64_t chunk_panels_ = 1;  // of the whole operand, of which the sums are there at once
  std::int64_t groups_ = 1;        // of chunks
};

/// A matrix of which rows or columns are contiguous.
bool is_dense(const ArrayView& view) {
  return view.shape[0] == 1 && (view.strides[2] == 1 || view.strides[1] == 1);
}

bool is_worth_it(std::int64_t rows, std::int64_t columns, std::int64_t depth) {
  const std::int64_t side = std::min(rows, columns);
  return side >= least_side && side * depth > least_area &&
         depth <= most_depth_of_side * std::max(rows, columns) &&
         rows * columns * depth >= least_work;
}

bool fits(const GemmArguments& call) {
  const ArrayView &out = call.out, &a = call.a, &b = call.b;
  const auto is_f32_or_bf16 = [](const ArrayView& view) {
    return !view || view.dtype == DType::f32 || view.dtype == DType::bf16;
  };
  return a.dtype == DType::bf16 && b.dtype == DType::bf16 && is_f32_or_bf16(out) &&
         is_f32_or_bf16(call.bias) && is_f32_or_bf16(call.aux) && is_f32_or_bf16(call.addend) &&
         is_dense(a) && is_dense(b) && is_dense(out) && out.strides[2] == 1 &&
         call.epilogue != Epilogue::bias_gradient &&
         is_worth_it(out.shape[1], out.shape[2], a.shape[2]);
}

}  // namespace

bool multiply_in_tiles(const GemmArguments& call) {
  if (!fits(call) || !has_tile_registers()) return false;
  const TileGemm gemm(call);
  if (gemm.whole().panels() * gemm.whole().steps() * step_elements > most_whole) return false;
  gemm.run();
  return true;
}

#else

bool multiply_in_tiles(const kernels::GemmArguments&) { return false; }

#endif

}  // namespace lockstep::cpu_kernels
