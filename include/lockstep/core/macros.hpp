#pragma once

/// @file
/// Compiler portability: the few macros that let one source serve g++, clang and nvcc.

/// Marks a function callable on the host and, where nvcc compiles it, on the device.
#if defined(__CUDACC__)
#define LOCKSTEP_HD __host__ __device__
#else
#define LOCKSTEP_HD
#endif

/// Asks for inlining where the optimiser's own judgement costs measurable time.
#if defined(__GNUC__) || defined(__clang__)
#define LOCKSTEP_ALWAYS_INLINE inline __attribute__((always_inline))
#define LOCKSTEP_COLD __attribute__((cold, noinline))
#define LOCKSTEP_RESTRICT __restrict__
#else
#define LOCKSTEP_ALWAYS_INLINE inline
#define LOCKSTEP_COLD
#define LOCKSTEP_RESTRICT
#endif
