#include "cpu/bf16_attention.hpp"

#include <algorithm>
#include <limits>
#include <string_view>

#include "cpu/loops.hpp"
#include "cpu/tile_products.hpp"
#include "lockstep/core/macros.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
// GCC 12 warns of its own intrinsics: what they leave undefined is never read (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace lockstep::cpu_kernels {
namespace {

#if defined(__x86_64__)

// Every function here has the target itself: what is inlined must not have more than its caller.
#define LOCKSTEP_BF16_TARGET \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma")))
#define LOCKSTEP_BF16_INLINE LOCKSTEP_BF16_TARGET LOCKSTEP_ALWAYS_INLINE

constexpr std::int64_t lanes = 16;
constexpr std::int64_t depth_block = 256;  // a block of b's panel stays in the first-level cache
constexpr float hidden = -std::numeric_limits<float>::infinity();

LOCKSTEP_BF16_INLINE __m512bh as_bf16(__m512i pairs) { return (__m512bh)pairs; }
LOCKSTEP_BF16_INLINE __m512i as_integers(__m512bh pairs) { return (__m512i)pairs; }

/// 8 x 32 sums in registers over one block of the depth.
LOCKSTEP_BF16_INLINE void register_tile(const PairProduct& t, std::int64_t row, std::int64_t column,
                                        std::int64_t first, std::int64_t depth) {
  const Pair* a = t.a + row * t.a_row + first * t.a_column;
  const Pair* b = t.b + first * t.b_row + column;
  __m512 sum[pair_rows][2];
#pragma GCC unroll 8
  for (int i = 0; i < pair_rows; ++i) sum[i][0] = sum[i][1] = _mm512_setzero_ps();
  for (std::int64_t p = 0; p < depth; ++p, a += t.a_column, b += t.b_row) {
    const __m512bh left = as_bf16(_mm512_loadu_si512(b));
    const __m512bh right = as_bf16(_mm512_loadu_si512(b + lanes));
#pragma GCC unroll 8
    for (int i = 0; i < pair_rows; ++i) {
      const __m512bh pair = as_bf16(_mm512_set1_epi32(static_cast<int>(a[i * t.a_row])));
      sum[i][0] = _mm512_dpbf16_ps(sum[i][0], pair, left);
      sum[i][1] = _mm512_dpbf16_ps(sum[i][1], pair, right);
    }
  }
  const __m512 scale = _mm512_set1_ps(t.scale);
  const bool add = t.accumulate || first > 0;
#pragma GCC unroll 8
  for (int i = 0; i < pair_rows; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      float* const to = t.c + (row + i) * t.c_row + column + v * lanes;
      const __m512 before = add ? _mm512_loadu_ps(to) : _mm512_setzero_ps();
      _mm512_storeu_ps(to, _mm512_fmadd_ps(sum[i][v], scale, before));
    }
}

LOCKSTEP_BF16_TARGET void multiply(const PairProduct& t) {
  for (std::int64_t p = 0; p == 0 || p < t.depth; p += depth_block) {
    const std::int64_t depth = std::min(depth_block, t.depth - p);
    for (std::int64_t j = 0; j < t.columns; j += pair_columns)
      for (std::int64_t i = 0; i < t.rows; i += pair_rows) register_tile(t, i, j, p, depth);
  }
}

LOCKSTEP_BF16_TARGET void copy_rows(Pair* to, std::int64_t columns, const BFloat16* from,
                                    std::int64_t row, std::int64_t used, std::int64_t count) {
  auto* next = reinterpret_cast<BFloat16*>(to);
  for (std::int64_t t = 0; t < count; ++t, from += row)
    for (std::int64_t d = 0; d < columns; d += 2 * lanes, next += 2 * lanes) {
      const std::int64_t left = std::clamp<std::int64_t>(used - d, 0, 2 * lanes);
      const auto mask = static_cast<__mmask32>((std::uint64_t{1} << left) - 1);
      _mm512_storeu_si512(next, _mm512_maskz_loadu_epi16(mask, from + d));
    }
}

/// Orders of words: those of two vectors in turn, the first or the last 16 of each.
LOCKSTEP_BF16_INLINE __m512i in_turn(int first) {
  const __m512i counts = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  // Word 2k is k + first of the one vector, word 2k + 1 that of the other.
  const __m512i low = _mm512_add_epi32(counts, _mm512_set1_epi32(first));
  return _mm512_or_si512(
      low, _mm512_slli_epi32(_mm512_add_epi32(low, _mm512_set1_epi32(2 * lanes)), 16));
}

LOCKSTEP_BF16_TARGET void interleave(Pair* to, const Pair* from, std::int64_t rows,
                                     std::int64_t columns) {
  const __m512i low = in_turn(0), high = in_turn(lanes);
  for (std::int64_t t = 0; t < rows; t += 2, from += columns)
    for (std::int64_t d = 0; d < columns; d += 2 * lanes, to += 2 * lanes) {
      const __m512i upper = _mm512_loadu_si512(from + d / 2);
      const __m512i lower = _mm512_loadu_si512(from + (columns + d) / 2);
      _mm512_storeu_si512(to, _mm512_permutex2var_epi16(upper, low, lower));
      _mm512_storeu_si512(to + lanes, _mm512_permutex2var_epi16(upper, high, lower));
    }
}

LOCKSTEP_BF16_TARGET void round(BFloat16* to, const float* from, float scale, std::int64_t count) {
  const __m512 factor = _mm512_set1_ps(scale);
  for (std::int64_t i = 0; i < count; i += lanes) {
    const auto mask =
        static_cast<__mmask16>((std::uint32_t{1} << std::min<std::int64_t>(count - i, lanes)) - 1);
    const __m512 values = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, from + i), factor);
    _mm256_mask_storeu_epi16(to + i, mask, (__m256i)_mm512_cvtneps_pbh(values));
  }
}

/// e^x for x that is not above 0 by much, to 2 ulp; NaN stays. Reduction of Cody and Waite, the
/// coefficients of functional/math.hpp.
LOCKSTEP_BF16_INLINE __m512 exponential(__m512 x) {
  x = _mm512_max_ps(_mm512_set1_ps(-110.0f), x);  // in this order NaN is kept
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)),
                                        _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.62e4p-1f), x);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.7f7d1cp-20f), r);
  __m512 p = _mm512_set1_ps(1.394116203e-03f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.363205008e-03f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.166637361e-02f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.666657627e-01f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
  p = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r);
  return _mm512_scalef_ps(_mm512_add_ps(p, _mm512_set1_ps(1.0f)), n);
}

/// Two rows of 16, rounded: each word of the first beside that of the second.
LOCKSTEP_BF16_INLINE __m512i interleaved(__m512 first, __m512 second) {
  const __m512i both = as_integers(_mm512_cvtne2ps_pbh(second, first));
  const __m512i order = _mm512_sub_epi32(in_turn(0), _mm512_set1_epi32(lanes << 16));
  return _mm512_permutexvar_epi16(order, both);
}

LOCKSTEP_BF16_TARGET void softmax(Pair* p, const PairScores& scores, float* largest, float* sum) {
  const std::int64_t row = scores.queries;
  for (std::int64_t q = 0; q < row; q += lanes) {
    const float* const from = scores.data + q;
    __m512 top = _mm512_set1_ps(hidden);
    for (std::int64_t s = 0; s < scores.keys; ++s)
      top = _mm512_max_ps(_mm512_loadu_ps(from + s * row), top);  // in this order NaN is left out
    const __mmask16 seeing = _mm512_cmp_ps_mask(top, _mm512_set1_ps(hidden), _CMP_NEQ_UQ);
    top = _mm512_maskz_mov_ps(seeing, top);
    __m512 first_sum = _mm512_setzero_ps(), second_sum = _mm512_setzero_ps();
    for (std::int64_t s = 0; s < scores.keys; s += 2) {
      const __m512 first = exponential(_mm512_sub_ps(_mm512_loadu_ps(from + s * row), top));
      const __m512 second =
          s + 1 < scores.keys
              ? exponential(_mm512_sub_ps(_mm512_loadu_ps(from + (s + 1) * row), top))
              : _mm512_setzero_ps();
      first_sum = _mm512_add_ps(first_sum, first);
      second_sum = _mm512_add_ps(second_sum, second);
      _mm512_storeu_si512(p + s / 2 * row + q, interleaved(first, second));
    }
    _mm512_storeu_ps(largest + q, top);
    _mm512_storeu_ps(sum + q, _mm512_add_ps(first_sum, second_sum));
  }
}

/// Writes 16 probabilities or gradients of each of two keys, rounded, in rows.
LOCKSTEP_BF16_INLINE void store_two_rows(Pair* to, std::int64_t row, __m512 first, __m512 second) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), (__m256i)_mm512_cvtneps_pbh(first));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + row / 2),
                      (__m256i)_mm512_cvtneps_pbh(second));
}

LOCKSTEP_BF16_TARGET void score_gradients(Pair* p, Pair* ds, Pair* ds_pairs,
                                          const PairScores& scores, const float* dp,
                                          const float* lse) {
  const std::int64_t row = scores.queries, keys = scores.keys;
  const std::int64_t padded = (keys + pair_rows - 1) / pair_rows * pair_rows;
  for (std::int64_t q = 0; q < row; q += lanes) {
    float* const from = scores.data + q;
    const float* const gradients = dp + q;
    const __m512 total = _mm512_loadu_ps(lse + q);
    __m512 mean = _mm512_setzero_ps();
    for (std::int64_t s = 0; s < keys; ++s) {
      const __m512 each = exponential(_mm512_sub_ps(_mm512_loadu_ps(from + s * row), total));
      _mm512_storeu_ps(from + s * row, each);
      mean = _mm512_fmadd_ps(each, _mm512_loadu_ps(gradients + s * row), mean);
    }
    const auto gradient = [&](std::int64_t s, __m512 each) LOCKSTEP_BF16_TARGET {
      return _mm512_mul_ps(each, _mm512_sub_ps(_mm512_loadu_ps(gradients + s * row), mean));
    };
    for (std::int64_t s = 0; s < padded; s += 2) {
      const __m512 none = _mm512_setzero_ps();
      const bool one = s < keys, two = s + 1 < keys;
      const __m512 first = one ? _mm512_loadu_ps(from + s * row) : none;
      const __m512 second = two ? _mm512_loadu_ps(from + (s + 1) * row) : none;
      const __m512 dfirst = one ? gradient(s, first) : none;
      const __m512 dsecond = two ? gradient(s + 1, second) : none;
      store_two_rows(p + (s * row + q) / 2, row, first, second);
      store_two_rows(ds + (s * row + q) / 2, row, dfirst, dsecond);
      _mm512_storeu_si512(ds_pairs + s / 2 * row + q, interleaved(dfirst, dsecond));
    }
  }
}

constexpr Bf16AttentionLoops in_vectors{multiply, copy_rows, interleave,
                                        round,    softmax,   score_gradients};
constexpr Bf16AttentionLoops in_tiles{multiply_in_tiles, copy_rows,      interleave, round,
                                      softmax,           score_gradients};

const Bf16AttentionLoops* choose() {
  if (has_tile_registers()) return &in_tiles;
  __builtin_cpu_init();
  const bool has = std::string_view(isa_name()) == "avx512" && __builtin_cpu_supports("avx512bf16");
  return has ? &in_vectors : nullptr;
}

#else

const Bf16AttentionLoops* choose() { return nullptr; }

#endif

}  // namespace

const Bf16AttentionLoops* bf16_attention_loops() {
  static const Bf16AttentionLoops* const loops = choose();
  return loops;
}

}  // namespace lockstep::cpu_kernels
