#include <algorithm>
#include <array>
#include <utility>

#include "cpu/loops/fill.hpp"
#include "lockstep/core/macros.hpp"

namespace lockstep::cpu_kernels::LOCKSTEP_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int vector_bytes = 64, accumulators = 20;
#elif defined(__AVX__)
constexpr int vector_bytes = 32, accumulators = 12;
#else
constexpr int vector_bytes = 16, accumulators = 12;
#endif
constexpr int lanes = vector_bytes / static_cast<int>(sizeof(float));
typedef float Vector __attribute__((vector_size(vector_bytes), aligned(alignof(float)), may_alias));

LOCKSTEP_ALWAYS_INLINE const Vector& vector_at(const float* from) {
  return *reinterpret_cast<const Vector*>(from);
}

float sum_of(const Vector& vector) {
  std::array<float, lanes> lane;
  __builtin_memcpy(lane.data(), &vector, sizeof(vector));
  for (int width = lanes / 2; width > 0; width /= 2)
    for (int k = 0; k < width; ++k) lane[k] += lane[k + width];
  return lane[0];
}

/// The products of all rows of a with some columns of b, whose sums stay in registers.
template <int rows, int columns>
void multiply_columns(const FewRows& o, std::int64_t first) {
  Vector sum[rows][columns] = {};
  const float* const b = o.b + first * o.b_stride;
  std::int64_t p = 0;
  for (; p + lanes <= o.depth; p += lanes) {
    Vector part[columns];
#pragma GCC unroll 4
    for (int j = 0; j < columns; ++j) part[j] = vector_at(b + j * o.b_stride + p);
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < columns; ++j) sum[i][j] += vector_at(o.a + i * o.a_row + p) * part[j];
  }
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j) {
      float& out = o.sums[i * o.sums_row + first + j];
      out = sum_of(sum[i][j]);
      for (std::int64_t k = p; k < o.depth; ++k)
        out += o.a[i * o.a_row + k] * b[j * o.b_stride + k];
    }
}

template <int rows>
void multiply_along_depth(const FewRows& o) {
  constexpr int together = std::clamp(accumulators / rows, 1, 4);
  std::int64_t j = 0;
  for (; j + together <= o.columns; j += together) multiply_columns<rows, together>(o, j);
  for (; j < o.columns; ++j) multiply_columns<rows, 1>(o, j);
}

/// Adds the products with some rows of b to the sums.
template <int rows, int depth>
void add_rows(const FewRows& o, std::int64_t first) {
  const float* __restrict b[depth];
  for (int p = 0; p < depth; ++p) b[p] = o.b + (first + p) * o.b_stride;
  float a[rows][depth];
  for (int i = 0; i < rows; ++i)
    for (int p = 0; p < depth; ++p) a[i][p] = o.a[i * o.a_row + first + p];
  std::int64_t j = 0;
  for (; j + lanes <= o.columns; j += lanes)
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
      auto& sum = *reinterpret_cast<Vector*>(o.sums + i * o.sums_row + j);
      Vector now = sum;
#pragma GCC unroll 4
      for (int p = 0; p < depth; ++p) now += a[i][p] * vector_at(b[p] + j);
      sum = now;
    }
  for (; j < o.columns; ++j)
    for (int i = 0; i < rows; ++i)
      for (int p = 0; p < depth; ++p) o.sums[i * o.sums_row + j] += a[i][p] * b[p][j];
}

template <int rows>
void multiply_along_columns(const FewRows& o) {
  std::int64_t p = 0;
  for (; p + 4 <= o.depth; p += 4) add_rows<rows, 4>(o, p);
  for (; p < o.depth; ++p) add_rows<rows, 1>(o, p);
}

template <std::size_t... less_one>
void fill(FewRowsLoops& loops, std::index_sequence<less_one...>) {
  ((loops.along_depth[less_one] = multiply_along_depth<less_one + 1>), ...);
  ((loops.along_columns[less_one] = multiply_along_columns<less_one + 1>), ...);
}

}  // namespace

void fill_few_rows(FewRowsLoops& loops) {
  fill(loops, std::make_index_sequence<FewRowsLoops::most_rows>());
}

}  // namespace lockstep::cpu_kernels::LOCKSTEP_ISA
