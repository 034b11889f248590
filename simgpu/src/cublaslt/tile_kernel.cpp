#include "cublaslt/tile_kernel.hpp"

namespace simgpu::cublaslt {
namespace {

template <class Sum>
using Kernel = void (*)(std::int64_t depth, const Sum* a, const Sum* b, Sum* sums,
                        std::int64_t stride);

template <class Sum>
[[gnu::always_inline]] inline void multiply(std::int64_t depth, const Sum* a, const Sum* b,
                                            Sum* sums, std::int64_t stride) {
  typedef Sum Vector __attribute__((vector_size(64), aligned(alignof(Sum)), may_alias));
  Vector columns[tile_columns] = {};
  for (std::int64_t p = 0; p < depth; ++p) {
    const auto column_a = *reinterpret_cast<const Vector*>(a + p * tile_rows<Sum>);
#pragma GCC unroll 12
    for (int j = 0; j < tile_columns; ++j) columns[j] += column_a * b[p * tile_columns + j];
  }
#pragma GCC unroll 12
  for (int j = 0; j < tile_columns; ++j)
    *reinterpret_cast<Vector*>(sums + j * stride) += columns[j];
}

#if defined(__x86_64__)

template <class Sum>
[[gnu::target("avx512f,fma")]] void multiply_avx512(std::int64_t depth, const Sum* a, const Sum* b,
                                                    Sum* sums, std::int64_t stride) {
  multiply(depth, a, b, sums, stride);
}
template <class Sum>
[[gnu::target("avx2,fma")]] void multiply_avx2(std::int64_t depth, const Sum* a, const Sum* b,
                                               Sum* sums, std::int64_t stride) {
  multiply(depth, a, b, sums, stride);
}

#endif

template <class Sum>
void multiply_anywhere(std::int64_t depth, const Sum* a, const Sum* b, Sum* sums,
                       std::int64_t stride) {
  multiply(depth, a, b, sums, stride);
}

/// The widest kernel that this processor runs.
template <class Sum>
Kernel<Sum> widest_kernel() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return multiply_avx512<Sum>;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return multiply_avx2<Sum>;
#endif
  return multiply_anywhere<Sum>;
}

}  // namespace

void multiply_tile(std::int64_t depth, const float* a, const float* b, float* sums,
                   std::int64_t stride) {
  static const Kernel<float> kernel = widest_kernel<float>();
  kernel(depth, a, b, sums, stride);
}

void multiply_tile(std::int64_t depth, const double* a, const double* b, double* sums,
                   std::int64_t stride) {
  static const Kernel<double> kernel = widest_kernel<double>();
  kernel(depth, a, b, sums, stride);
}

}  // namespace simgpu::cublaslt
