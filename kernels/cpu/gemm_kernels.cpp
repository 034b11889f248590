#include "cpu/gemm_kernels.hpp"

#include <cstring>
#include <string_view>
#include <utility>

#include "cpu/loops.hpp"
#include "lockstep/core/macros.hpp"

namespace lockstep::cpu_kernels {
namespace {

template <class T, int bytes>
struct VectorOf {
  typedef T type __attribute__((vector_size(bytes), aligned(alignof(T)), may_alias));
};

// Sums stay in registers over the whole depth: rows x vectors accumulators.
template <class T, int bytes, int rows, int vectors, bool adds>
LOCKSTEP_ALWAYS_INLINE void register_tile(const TileOperands<T>& o) {
  using Vector = typename VectorOf<T, bytes>::type;
  constexpr int lanes = bytes / static_cast<int>(sizeof(T));
  Vector sum[rows][vectors] = {};
  const T *a = o.a, *b = o.b;
  for (std::int64_t p = 0; p < o.depth; ++p, a += o.a_column, b += o.b_row) {
    Vector row_b[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) row_b[v] = *reinterpret_cast<const Vector*>(b + v * lanes);
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sum[i][v] += a[i * o.a_row] * row_b[v];
  }
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      if constexpr (adds)
        sum[i][v] += *reinterpret_cast<const Vector*>(o.addend + i * o.addend_row + v * lanes);
      *reinterpret_cast<Vector*>(o.c + i * o.c_row + v * lanes) = sum[i][v];
    }
}

template <class T, int bytes, int rows>
LOCKSTEP_ALWAYS_INLINE void packed_tile(std::int64_t depth, const T* a, const T* b, T* c,
                                        std::int64_t c_stride) {
  constexpr std::int64_t columns = 2 * bytes / static_cast<int>(sizeof(T));
  register_tile<T, bytes, rows, 2, true>({depth, a, 1, rows, b, columns, c, c_stride, c, c_stride});
}

#if defined(__x86_64__)

// As many accumulators as the register file holds beside the operands: 24 of 32, 12 of 16.
template <class T>
__attribute__((target("avx512f,fma"))) void tile_avx512(std::int64_t depth, const T* a, const T* b,
                                                        T* c, std::int64_t c_stride) {
  packed_tile<T, 64, 12>(depth, a, b, c, c_stride);
}
template <class T>
__attribute__((target("avx2,fma"))) void tile_avx2(std::int64_t depth, const T* a, const T* b, T* c,
                                                   std::int64_t c_stride) {
  packed_tile<T, 32, 6>(depth, a, b, c, c_stride);
}

#endif

template <class T>
void tile_baseline(std::int64_t depth, const T* a, const T* b, T* c, std::int64_t c_stride) {
  packed_tile<T, 16, 4>(depth, a, b, c, c_stride);
}

// Each instruction set has a struct, so that its tiles are found by their numbers of rows and
// vectors. 8 x 2 sums fill half of 32 registers, 6 x 2 or 4 x 2 most of 16.
#define LOCKSTEP_STRIDED_TILES(level, attribute, vector_bytes, rows)   \
  struct level {                                                       \
    static constexpr int bytes = vector_bytes, most_rows = rows;       \
    template <int tile_rows, int vectors, bool adds>                   \
    attribute static void tile(const TileOperands<float>& operands) {  \
      register_tile<float, bytes, tile_rows, vectors, adds>(operands); \
    }                                                                  \
  };
#if defined(__x86_64__)
LOCKSTEP_STRIDED_TILES(StridedAvx512, __attribute__((target("avx512f,fma"))), 64, 8)
LOCKSTEP_STRIDED_TILES(StridedAvx2, __attribute__((target("avx2,fma"))), 32, 6)
#endif
LOCKSTEP_STRIDED_TILES(StridedBaseline, , 16, 4)
#undef LOCKSTEP_STRIDED_TILES

template <class Level>
constexpr StridedKernels strided() {
  StridedKernels kernels{.rows = Level::most_rows, .lanes = Level::bytes / 4};
  [&]<int... row>(std::integer_sequence<int, row...>) {
    ((kernels.product[0][row] = Level::template tile<row + 1, 1, false>), ...);
    ((kernels.product[1][row] = Level::template tile<row + 1, 2, false>), ...);
    ((kernels.sum[0][row] = Level::template tile<row + 1, 1, true>), ...);
    ((kernels.sum[1][row] = Level::template tile<row + 1, 2, true>), ...);
  }
  (std::make_integer_sequence<int, Level::most_rows>());
  return kernels;
}

template <class T>
GemmKernel<T> choose([[maybe_unused]] std::string_view isa) {
  constexpr int size = sizeof(T);
#if defined(__x86_64__)
  if (isa == "avx512") return {12, 128 / size, tile_avx512<T>};
  if (isa == "avx2") return {6, 64 / size, tile_avx2<T>};
#endif
  return {4, 32 / size, tile_baseline<T>};
}

StridedKernels choose_strided([[maybe_unused]] std::string_view isa) {
#if defined(__x86_64__)
  if (isa == "avx512") return strided<StridedAvx512>();
  if (isa == "avx2") return strided<StridedAvx2>();
#endif
  return strided<StridedBaseline>();
}

}  // namespace

const StridedKernels& strided_kernels() {
  static const StridedKernels kernels = choose_strided(isa_name());
  return kernels;
}

template <class T>
const GemmKernel<T>& gemm_kernel() {
  static const GemmKernel<T> kernel = choose<T>(isa_name());
  return kernel;
}

template const GemmKernel<float>& gemm_kernel<float>();
template const GemmKernel<double>& gemm_kernel<double>();

}  // namespace lockstep::cpu_kernels
