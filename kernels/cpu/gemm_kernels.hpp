#pragma once

#include <cstdint>

/// @file
/// The innermost loop of a matrix product: one register tile, chosen for the instruction set at
/// run time. The blocking around it follows Goto and van de Geijn 2008.

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

}  // namespace lockstep::cpu_kernels
