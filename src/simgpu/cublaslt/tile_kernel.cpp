#include "simgpu/cublaslt/tile_kernel.hpp"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__SANITIZE_THREAD__)
#define SIMGPU_FOR_EVERY_PROCESSOR \
  __attribute__((target_clones("arch=skylake-avx512", "arch=haswell", "default")))
#else
#define SIMGPU_FOR_EVERY_PROCESSOR
#endif

namespace simgpu::cublaslt {
namespace {

template <class Sum>
[[gnu::always_inline]] inline void multiply(std::int64_t depth, const Sum* a, const Sum* b,
                                            Sum* sums, std::int64_t stride) {
  typedef Sum Vector __attribute__((vector_size(64), aligned(alignof(Sum)), may_alias));
  Vector columns[tile_columns] = {};
  for (std::int64_t p = 0; p < depth; ++p) {
    const auto column_a = *reinterpret_cast<const Vector*>(a + p * tile_rows<Sum>);
#pragma GCC unroll 6
    for (int j = 0; j < tile_columns; ++j) columns[j] += column_a * b[p * tile_columns + j];
  }
#pragma GCC unroll 6
  for (int j = 0; j < tile_columns; ++j)
    *reinterpret_cast<Vector*>(sums + j * stride) += columns[j];
}

}  // namespace

SIMGPU_FOR_EVERY_PROCESSOR void multiply_tile(std::int64_t depth, const float* a, const float* b,
                                              float* sums, std::int64_t stride) {
  multiply(depth, a, b, sums, stride);
}

SIMGPU_FOR_EVERY_PROCESSOR void multiply_tile(std::int64_t depth, const double* a, const double* b,
                                              double* sums, std::int64_t stride) {
  multiply(depth, a, b, sums, stride);
}

}  // namespace simgpu::cublaslt
