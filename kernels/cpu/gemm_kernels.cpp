#include "cpu/gemm_kernels.hpp"

#include <cstring>
#include <string_view>

#include "cpu/loops.hpp"
#include "lockstep/core/macros.hpp"

namespace lockstep::cpu_kernels {
namespace {

template <class T, int bytes>
struct VectorOf {
  typedef T type __attribute__((vector_size(bytes), aligned(alignof(T)), may_alias));
};

// Sums stay in registers over the whole depth: rows x vectors accumulators.
template <class T, int bytes, int rows, int vectors>
LOCKSTEP_ALWAYS_INLINE void register_tile(std::int64_t depth, const T* a, const T* b, T* c,
                                          std::int64_t c_stride) {
  using Vector = typename VectorOf<T, bytes>::type;
  constexpr int lanes = bytes / static_cast<int>(sizeof(T));
  Vector sum[rows][vectors] = {};
  for (std::int64_t p = 0; p < depth; ++p) {
    Vector row_b[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v)
      row_b[v] = *reinterpret_cast<const Vector*>(b + p * vectors * lanes + v * lanes);
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sum[i][v] += a[p * rows + i] * row_b[v];
  }
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v)
      *reinterpret_cast<Vector*>(c + i * c_stride + v * lanes) += sum[i][v];
}

#if defined(__x86_64__)

// As many accumulators as the register file holds beside the operands: 24 of 32, 12 of 16.
template <class T>
__attribute__((target("avx512f,fma"))) void tile_avx512(std::int64_t depth, const T* a, const T* b,
                                                        T* c, std::int64_t c_stride) {
  register_tile<T, 64, 12, 2>(depth, a, b, c, c_stride);
}
template <class T>
__attribute__((target("avx2,fma"))) void tile_avx2(std::int64_t depth, const T* a, const T* b, T* c,
                                                   std::int64_t c_stride) {
  register_tile<T, 32, 6, 2>(depth, a, b, c, c_stride);
}

#endif

template <class T>
void tile_baseline(std::int64_t depth, const T* a, const T* b, T* c, std::int64_t c_stride) {
  register_tile<T, 16, 4, 2>(depth, a, b, c, c_stride);
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

}  // namespace

template <class T>
const GemmKernel<T>& gemm_kernel() {
  static const GemmKernel<T> kernel = choose<T>(isa_name());
  return kernel;
}

template const GemmKernel<float>& gemm_kernel<float>();
template const GemmKernel<double>& gemm_kernel<double>();

}  // namespace lockstep::cpu_kernels
