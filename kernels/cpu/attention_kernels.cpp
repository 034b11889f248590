#include "cpu/attention_kernels.hpp"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "cpu/loops.hpp"
#include "cpu/shuffle.hpp"
#include "functional/math.hpp"
#include "lockstep/core/macros.hpp"

// Everything below is inlined into the three instantiations at the end, each compiled for its own
// instruction set. Lambdas would not be: they do not take over the target of what surrounds them.

namespace lockstep::cpu_kernels {
namespace {

constexpr std::int64_t depth_block = 256;  // a block of b's panel stays in the first-level cache

template <int bytes>
struct FloatVector {
  static constexpr int lanes = bytes / 4;
  typedef float type __attribute__((vector_size(bytes), aligned(4), may_alias));
};

template <int bytes>
using Vector = typename FloatVector<bytes>::type;

template <int bytes>
LOCKSTEP_ALWAYS_INLINE Vector<bytes> load(const float* from) {
  return *reinterpret_cast<const Vector<bytes>*>(from);
}
template <int bytes>
LOCKSTEP_ALWAYS_INLINE void store(float* to, Vector<bytes> value) {
  *reinterpret_cast<Vector<bytes>*>(to) = value;
}

/// rows x (vectors * lanes) sums in registers over one block of the depth.
template <int bytes, int rows, int vectors>
LOCKSTEP_ALWAYS_INLINE void register_tile(float* c, std::int64_t c_row, const StridedMatrix& a,
                                          const float* b, std::int64_t b_row, std::int64_t depth,
                                          bool accumulate) {
  constexpr int lanes = FloatVector<bytes>::lanes;
  Vector<bytes> sum[rows][vectors] = {};
  for (std::int64_t p = 0; p < depth; ++p) {
    Vector<bytes> row_b[vectors];
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) row_b[v] = load<bytes>(b + p * b_row + v * lanes);
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i)
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v) sum[i][v] += a.data[i * a.row + p * a.column] * row_b[v];
  }
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) {
      float* to = c + i * c_row + v * lanes;
      store<bytes>(to, accumulate ? load<bytes>(to) + sum[i][v] : sum[i][v]);
    }
}

template <int bytes, int rows, int vectors>
LOCKSTEP_ALWAYS_INLINE void column_panel(const TileProduct& t, std::int64_t column, std::int64_t p,
                                         std::int64_t depth) {
  for (std::int64_t i = 0; i < t.rows; i += rows) {
    const StridedMatrix a{t.a.data + i * t.a.row + p * t.a.column, t.a.row, t.a.column};
    register_tile<bytes, rows, vectors>(t.c + i * t.c_row + column, t.c_row, a,
                                        t.b + p * t.b_row + column, t.b_row, depth,
                                        t.accumulate || p > 0);
  }
}

template <int bytes, int rows>
LOCKSTEP_ALWAYS_INLINE void multiply(const TileProduct& t) {
  constexpr int lanes = FloatVector<bytes>::lanes;
  for (std::int64_t p = 0; p == 0 || p < t.depth; p += depth_block) {
    const std::int64_t depth = std::min(depth_block, t.depth - p);
    std::int64_t j = 0;
    for (; j + 2 * lanes <= t.columns; j += 2 * lanes) column_panel<bytes, rows, 2>(t, j, p, depth);
    if (j < t.columns) column_panel<bytes, rows, 1>(t, j, p, depth);
  }
}

/// One exchange of a transposition: lanes whose index has the bit `step` change rows.
template <int bytes, int step, bool upper, int... lane>
LOCKSTEP_ALWAYS_INLINE Vector<bytes> exchange(Vector<bytes> a, Vector<bytes> b,
                                              std::integer_sequence<int, lane...>) {
  constexpr int lanes = FloatVector<bytes>::lanes;
  if constexpr (upper)
    return shuffled<(lane & step ? lanes + lane : lane | step)...>(a, b);
  else
    return shuffled<(lane & step ? lanes + (lane ^ step) : lane)...>(a, b);
}

template <int bytes, int step>
LOCKSTEP_ALWAYS_INLINE void exchange_all(Vector<bytes>* rows) {
  constexpr int lanes = FloatVector<bytes>::lanes;
  if constexpr (step < lanes) {
    constexpr auto sequence = std::make_integer_sequence<int, lanes>();
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i) {
      if (i & step) continue;
      const Vector<bytes> a = rows[i], b = rows[i + step];
      rows[i] = exchange<bytes, step, false>(a, b, sequence);
      rows[i + step] = exchange<bytes, step, true>(a, b, sequence);
    }
    exchange_all<bytes, step * 2>(rows);
  }
}

/// Square blocks in registers, by exchanges of ever larger steps (Eklundh 1972).
template <int bytes>
LOCKSTEP_ALWAYS_INLINE void transpose(float* to, const float* from, std::int64_t rows,
                                      std::int64_t columns) {
  constexpr int lanes = FloatVector<bytes>::lanes;
  for (std::int64_t i = 0; i < rows; i += lanes)
    for (std::int64_t j = 0; j < columns; j += lanes) {
      Vector<bytes> block[lanes];
#pragma GCC unroll 16
      for (int k = 0; k < lanes; ++k) block[k] = load<bytes>(from + (i + k) * columns + j);
      exchange_all<bytes, 1>(block);
#pragma GCC unroll 16
      for (int k = 0; k < lanes; ++k) store<bytes>(to + (j + k) * rows + i, block[k]);
    }
}

LOCKSTEP_ALWAYS_INLINE void softmax(const ScoreBlock& scores, float* LOCKSTEP_RESTRICT largest,
                                    float* LOCKSTEP_RESTRICT sum) {
  constexpr float hidden = -std::numeric_limits<float>::infinity();
  const std::int64_t queries = scores.queries;
  for (std::int64_t q = 0; q < queries; ++q) largest[q] = hidden;
  for (std::int64_t s = 0; s < scores.keys; ++s) {
    const float* LOCKSTEP_RESTRICT row = scores.data + s * queries;
    for (std::int64_t q = 0; q < queries; ++q)
      largest[q] = row[q] > largest[q] ? row[q] : largest[q];
  }
  for (std::int64_t q = 0; q < queries; ++q) {
    largest[q] = largest[q] == hidden ? 0.0f : largest[q];
    sum[q] = 0;
  }
  for (std::int64_t s = 0; s < scores.keys; ++s) {
    float* LOCKSTEP_RESTRICT row = scores.data + s * queries;
    for (std::int64_t q = 0; q < queries; ++q) {
      const float p = functional::math::exp(row[q] - largest[q]);
      row[q] = p;
      sum[q] += p;
    }
  }
}

LOCKSTEP_ALWAYS_INLINE void probabilities(const ScoreBlock& scores,
                                          const float* LOCKSTEP_RESTRICT lse) {
  for (std::int64_t s = 0; s < scores.keys; ++s) {
    float* LOCKSTEP_RESTRICT row = scores.data + s * scores.queries;
    for (std::int64_t q = 0; q < scores.queries; ++q)
      row[q] = functional::math::exp(row[q] - lse[q]);
  }
}

template <int bytes>
LOCKSTEP_ALWAYS_INLINE void score_gradients(const ScoreBlock& scores, const float* probabilities) {
  constexpr int lanes = FloatVector<bytes>::lanes;
  for (std::int64_t q = 0; q < scores.queries; q += lanes) {
    Vector<bytes> mean = {};
    for (std::int64_t s = 0; s < scores.keys; ++s) {
      const std::int64_t at = s * scores.queries + q;
      mean += load<bytes>(probabilities + at) * load<bytes>(scores.data + at);
    }
    for (std::int64_t s = 0; s < scores.keys; ++s) {
      const std::int64_t at = s * scores.queries + q;
      const auto p = load<bytes>(probabilities + at);
      store<bytes>(scores.data + at, p * (load<bytes>(scores.data + at) - mean));
    }
  }
}

// The same loops for each instruction set; 8 x 2 sums fill half of 32 registers, 4 x 2 of 16.
#define LOCKSTEP_ATTENTION_KERNELS(level, target_attribute, bytes, rows)                           \
  namespace level {                                                                                \
  target_attribute void multiply_all(const TileProduct& t) { multiply<bytes, rows>(t); }           \
  target_attribute void transpose_all(float* to, const float* from, std::int64_t r,                \
                                      std::int64_t c) {                                            \
    transpose<bytes>(to, from, r, c);                                                              \
  }                                                                                                \
  target_attribute void softmax_all(const ScoreBlock& s, float* l, float* t) { softmax(s, l, t); } \
  target_attribute void probabilities_all(const ScoreBlock& s, const float* l) {                   \
    probabilities(s, l);                                                                           \
  }                                                                                                \
  target_attribute void score_gradients_all(const ScoreBlock& s, const float* p) {                 \
    score_gradients<bytes>(s, p);                                                                  \
  }                                                                                                \
  constexpr AttentionLoops table{bytes / 4,          rows,        multiply_all,                    \
                                 transpose_all,      softmax_all, probabilities_all,               \
                                 score_gradients_all};                                             \
  }
#if defined(__x86_64__)
LOCKSTEP_ATTENTION_KERNELS(
    avx512,
    __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,fma,prefer-vector-width=512"))), 64,
    8)
LOCKSTEP_ATTENTION_KERNELS(avx2, __attribute__((target("avx2,fma"))), 32, 4)
#endif
LOCKSTEP_ATTENTION_KERNELS(baseline, , 16, 4)
#undef LOCKSTEP_ATTENTION_KERNELS

const AttentionLoops& choose([[maybe_unused]] std::string_view isa) {
#if defined(__x86_64__)
  if (isa == "avx512") return avx512::table;
  if (isa == "avx2") return avx2::table;
#endif
  return baseline::table;
}

}  // namespace

const AttentionLoops& attention_loops() {
  static const AttentionLoops& kernels = choose(isa_name());
  return kernels;
}

}  // namespace lockstep::cpu_kernels
