#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/core/macros.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/// @file
/// The tile registers of AMX, which multiply 16 x 32 by 32 x 16 bf16 and add the products to 16 x
/// 16 sums in f32, in pairs of the depth (Intel 64 and IA-32 Architectures Software Developer's
/// Manual, volume 1, chapter 18). What is subnormal counts as 0.

namespace lockstep::cpu_kernels {

constexpr std::int64_t tile_side = 16;               ///< rows and columns of a tile of sums
constexpr std::int64_t tile_pairs = 16;              ///< pairs of the depth of one step
constexpr std::int64_t tile_bytes = 1024;            ///< of a register
constexpr std::int64_t block_side = 2 * tile_side;   ///< of the sums that registers hold
constexpr std::int64_t step_bytes = 2 * tile_bytes;  ///< of an operand of a block, a step

/// True where the processor has tiles of bf16.
bool machine_has_tile_registers();
/// True where they are used: the instruction set in use (cpu_kernels::isa_name) is AVX-512, the
/// processor has its bf16 instructions, too, the system grants tiles, and the environment variable
/// LOCKSTEP_CPU_AMX is not 0.
bool has_tile_registers();

#if defined(__x86_64__)

// Every function here has the target itself: what is inlined must not have more than its caller.
#define LOCKSTEP_TILE_TARGET \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma,amx-tile,amx-bf16")))
#define LOCKSTEP_TILE_INLINE LOCKSTEP_TILE_TARGET LOCKSTEP_ALWAYS_INLINE

/// Has the thread's tile registers while it lives, each of 16 rows of 64 bytes.
class TileRegisters {
 public:
  LOCKSTEP_TILE_INLINE TileRegisters() {
    alignas(64) static constexpr Shape shape;
    _tile_loadconfig(&shape);
  }
  LOCKSTEP_TILE_INLINE ~TileRegisters() { _tile_release(); }
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;

 private:
  struct Shape {
    std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
    std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  };
  static_assert(sizeof(Shape) == 64);
};

/// Tiles of one operand of a block: of a, rows of pairs; of b, pairs of the depth in rows.
struct TileSource {
  const void* data;
  std::int64_t row;   ///< bytes from one row of a tile to the next
  std::int64_t step;  ///< from a tile to the one behind it in the depth
  std::int64_t next;  ///< to that of the block's other rows of a, or columns of b

  LOCKSTEP_TILE_INLINE const char* at(std::int64_t s) const {
    return static_cast<const char*>(data) + s * step;
  }
};

// The sums of a block are in tiles 0 to 3, row by row.

LOCKSTEP_TILE_INLINE void clear_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

/// Sums [32, 32], rows `row` floats apart.
LOCKSTEP_TILE_INLINE void load_sums(const float* c, std::int64_t row) {
  asm volatile("" ::: "memory");  // the intrinsics do not say what they read
  _tile_loadd(0, c, row * 4);
  _tile_loadd(1, c + tile_side, row * 4);
  _tile_loadd(2, c + tile_side * row, row * 4);
  _tile_loadd(3, c + tile_side * row + tile_side, row * 4);
}
LOCKSTEP_TILE_INLINE void store_sums(float* c, std::int64_t row) {
  _tile_stored(0, c, row * 4);
  _tile_stored(1, c + tile_side, row * 4);
  _tile_stored(2, c + tile_side * row, row * 4);
  _tile_stored(3, c + tile_side * row + tile_side, row * 4);
  asm volatile("" ::: "memory");
}

/// Adds the products of `steps` steps of 32 elements.
LOCKSTEP_TILE_INLINE void add_products(const TileSource& a, const TileSource& b,
                                       std::int64_t steps) {
  asm volatile("" ::: "memory");
  for (std::int64_t s = 0; s < steps; ++s) {
    const char *const rows = a.at(s), *const columns = b.at(s);
    _tile_loadd(4, rows, a.row);
    _tile_loadd(6, columns, b.row);
    _tile_loadd(7, columns + b.next, b.row);
    _tile_loadd(5, rows + a.next, a.row);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
}

#endif

}  // namespace lockstep::cpu_kernels
