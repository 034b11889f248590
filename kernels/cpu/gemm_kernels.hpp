#pragma once

#include <cstdint>

/// @file
/// The innermost loops of matrix products: register tiles, chosen for the instruction set at run
/// time. The blocking around them follows Goto and van de Geijn 2008.

namespace lockstep::cpu_kernels {

/// A register tile of `rows` x `columns` over packed panels.
template <class T>
struct GemmKernel {
  int rows;
  int columns;
  /// c[rows x columns] += a panel (depth x rows) times b panel (depth x columns).
  void (*run)(std::int64_t depth, const T* a, const T* b, T* c, std::int64_t c_stride);
};

/// The kernel of the instruction set in use (cpu_kernels::isa_name), for float or double.
template <class T>
const GemmKernel<T>& gemm_kernel();

/// Operands of a register tile as they lie in memory: element (i, p) of a is at
/// a[i * a_row + p * a_column], rows of the others are contiguous.
template <class T>
struct TileOperands {
  std::int64_t depth;
  const T* a;
  std::int64_t a_row, a_column;
  const T* b;
  std::int64_t b_row;
  T* c;
  std::int64_t c_row;
  const T* addend;  ///< may be c; with an addend_row of 0 the same for all rows
  std::int64_t addend_row;
};

/// Register tiles of 1 to `rows` rows over 1 or 2 vectors of b in memory.
struct StridedKernels {
  static constexpr int most_rows = 8, most_vectors = 2;
  using Tile = void (*)(const TileOperands<float>& operands);

  int rows;
  int lanes;                                   ///< floats of a vector
  Tile product[most_vectors][most_rows] = {};  ///< c = a @ b, by vectors and rows less one
  Tile sum[most_vectors][most_rows] = {};      ///< c = addend + a @ b
};

/// Those of the instruction set in use.
const StridedKernels& strided_kernels();

}  // namespace lockstep::cpu_kernels
