#pragma once

#include <algorithm>
#include <span>

#include "cpu/loop_nest.hpp"
#include "cpu/loops.hpp"
#include "lockstep/core/array_view.hpp"
#include "lockstep/core/function_ref.hpp"

/// @file
/// Runs a contiguous loop over operands of any stride and dtype: what the loop cannot read or write
/// in place goes through a tile, a small contiguous buffer in the loop's type.

namespace lockstep::cpu_kernels {

/// Work below which a loop is not worth a second thread, in elements.
inline constexpr std::int64_t parallel_grain = 32768;
/// Elements of one tile.
inline constexpr std::int64_t tile_elements = 1024;

/// Rows at least this long are handed to the loop one at a time; shorter ones are gathered.
inline constexpr std::int64_t long_row = 64;

/// One operand of a tiled loop.
struct TileOperand {
  char* data = nullptr;
  std::size_t size = 0;              ///< bytes of an element in memory
  std::size_t tile_size = 0;         ///< bytes of an element in a tile
  LoadRowsLoop load_rows = nullptr;  ///< null for an output
  StoreLoop store = nullptr;         ///< null for an input
  bool direct = false;               ///< memory and tile have the same format

  /// An operand that the loop sees in its accumulation type.
  static TileOperand input(const ArrayView& view);
  static TileOperand output(const ArrayView& view);
  /// An output that the loop writes in the accumulation type `type`, not its own.
  static TileOperand output(const ArrayView& view, Accumulate type);
  /// An operand that the loop sees as it is: bits of the element's size.
  static TileOperand raw_input(const ArrayView& view);
  static TileOperand raw_output(const ArrayView& view);
};

/// Called with one pointer an operand and a number of elements.
using TileLoop = FunctionRef<void(void* const* pointers, std::int64_t n)>;

/// As TileLoop, with the linear position of the first element.
using PlacedTileLoop =
    FunctionRef<void(void* const* pointers, std::int64_t position, std::int64_t n)>;

/// Runs `loop` over all elements of the nest, in parallel; operand k has the nest's strides k.
void run_tiled(const LoopNest& nest, std::span<const TileOperand> operands, TileLoop loop);
void run_tiled_at(const LoopNest& nest, std::span<const TileOperand> operands, PlacedTileLoop loop);

/// Elements of a view if it is contiguous, else -1.
inline std::int64_t contiguous_count(const ArrayView& view) {
  std::int64_t step = 1;
  for (int d = view.rank() - 1; d >= 0; --d) {
    const std::int64_t extent = view.shape[d];
    if (view.strides[d] != step && extent != 1)
      return std::ranges::find(view.shape, 0) == view.shape.end() ? -1 : 0;
    step *= extent;
  }
  return step;
}

}  // namespace lockstep::cpu_kernels
