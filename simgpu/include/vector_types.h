#pragma once

/// @file
/// The small vectors of CUDA C++, and dim3: plain structures with the sizes and the alignments of
/// the original.

#define SIMGPU_VECTOR_TYPES(element, name, align2, align4)                             \
  struct name##1 {                                                                     \
    element x;                                                                         \
  };                                                                                   \
  struct alignas(align2) name##2 {                                                     \
    element x, y;                                                                      \
  };                                                                                   \
  struct name##3 {                                                                     \
    element x, y, z;                                                                   \
  };                                                                                   \
  struct alignas(align4) name##4 {                                                     \
    element x, y, z, w;                                                                \
  };                                                                                   \
  inline name##1 make_##name##1(element x) { return {x}; }                             \
  inline name##2 make_##name##2(element x, element y) { return {x, y}; }               \
  inline name##3 make_##name##3(element x, element y, element z) { return {x, y, z}; } \
  inline name##4 make_##name##4(element x, element y, element z, element w) { return {x, y, z, w}; }

SIMGPU_VECTOR_TYPES(signed char, char, 2, 4)
SIMGPU_VECTOR_TYPES(unsigned char, uchar, 2, 4)
SIMGPU_VECTOR_TYPES(short, short, 4, 8)
SIMGPU_VECTOR_TYPES(unsigned short, ushort, 4, 8)
SIMGPU_VECTOR_TYPES(int, int, 8, 16)
SIMGPU_VECTOR_TYPES(unsigned int, uint, 8, 16)
SIMGPU_VECTOR_TYPES(long, long, 16, 16)
SIMGPU_VECTOR_TYPES(unsigned long, ulong, 16, 16)
SIMGPU_VECTOR_TYPES(long long, longlong, 16, 16)
SIMGPU_VECTOR_TYPES(unsigned long long, ulonglong, 16, 16)
SIMGPU_VECTOR_TYPES(float, float, 8, 16)
SIMGPU_VECTOR_TYPES(double, double, 16, 16)

#undef SIMGPU_VECTOR_TYPES

/// Extents of a grid or a block.
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned width = 1, unsigned height = 1, unsigned depth = 1)
      : x(width), y(height), z(depth) {}
  constexpr dim3(uint3 from) : x(from.x), y(from.y), z(from.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};
