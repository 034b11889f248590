#pragma once

#include "arguments/kernel.hpp"

/// @file
/// How a family of kernels is declared, once for all backends.

/// A family from its list of KERNEL(name, Arguments): the table that a backend holds, and of the
/// CPU and of GPUs the functions that it names, each in the namespace of its family, with
/// `table()`, which returns them all. A source defines the function of a kernel, and that is all
/// there is to do. At global scope; `Arguments` and `Table` are lockstep::kernels'.
#define LOCKSTEP_KERNEL_FAMILY(family, Table, KERNELS)                       \
  namespace lockstep::kernels {                                              \
  struct Table {                                                             \
    KERNELS(LOCKSTEP_KERNEL_ENTRY)                                           \
  };                                                                         \
  }                                                                          \
  namespace lockstep::cpu_kernels::family {                                  \
  KERNELS(LOCKSTEP_KERNEL_FUNCTION)                                          \
  inline kernels::Table table() { return {KERNELS(LOCKSTEP_KERNEL_NAMED)}; } \
  }                                                                          \
  namespace lockstep::cuda_kernels::family {                                 \
  KERNELS(LOCKSTEP_KERNEL_FUNCTION)                                          \
  inline kernels::Table table() { return {KERNELS(LOCKSTEP_KERNEL_NAMED)}; } \
  }

#define LOCKSTEP_KERNEL_ENTRY(name, Arguments) Kernel<Arguments> name = {};
#define LOCKSTEP_KERNEL_FUNCTION(name, Arguments) \
  void name(const kernels::Arguments& arguments, StreamRef stream);
#define LOCKSTEP_KERNEL_NAMED(name, Arguments) .name = name,
