#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>

#include "lockstep/core/shape.hpp"

/// @file
/// Loop nests over operands of one shape and any strides.

namespace lockstep::cpu_kernels {

/// Most operands that one nest walks.
inline constexpr int max_operands = 5;

/// Extents and strides (in elements) of up to `max_operands` operands, with as few dimensions as
/// they allow: extents of 1 are gone, neighbours that all operands step through evenly are merged,
/// and dimensions are ordered so that the first operand's strides fall. There is always one
/// dimension.
struct LoopNest {
  int rank = 0;
  int operands = 0;
  std::int64_t total = 1;
  std::array<std::int64_t, max_rank> extent{};
  std::array<std::array<std::int64_t, max_rank>, max_operands> stride{};

  /// Extent of the innermost dimension.
  std::int64_t inner() const { return extent[static_cast<std::size_t>(rank - 1)]; }
  /// Stride of an operand in the innermost dimension.
  std::int64_t inner_stride(int operand) const {
    return stride[static_cast<std::size_t>(operand)][static_cast<std::size_t>(rank - 1)];
  }
  /// Stride of an operand in the dimension outside the innermost one; 0 if there is none.
  std::int64_t row_stride(int operand) const {
    return rank < 2 ? 0
                    : stride[static_cast<std::size_t>(operand)][static_cast<std::size_t>(rank - 2)];
  }
  /// True if the operand's elements follow one another in the nest's order.
  bool is_linear(int operand) const;
  /// True if the operand is one element, repeated.
  bool is_scalar(int operand) const;
};

/// Builds the nest of operands that all have `shape`.
/// @param reorder false keeps the given order of dimensions.
LoopNest make_loop_nest(const Shape& shape, std::initializer_list<const Strides*> strides,
                        bool reorder = true);

/// A place in a nest: an index, and each operand's offset in elements.
struct Cursor {
  std::array<std::int64_t, max_rank> index{};
  std::array<std::int64_t, max_operands> offset{};

  /// Goes to a linear position.
  void seek(const LoopNest& nest, std::int64_t position);
  /// Goes on by `count` elements, at most to the end of the innermost row.
  void advance(const LoopNest& nest, std::int64_t count);
  /// Whole rows of the innermost dimension that lie in `count` elements from here and, in the
  /// dimension outside it, before its end; 0 within a row.
  std::int64_t whole_rows(const LoopNest& nest, std::int64_t count) const;
  /// Goes on by so many.
  void advance_rows(const LoopNest& nest, std::int64_t rows);
  /// Elements left in the innermost row.
  std::int64_t row_left(const LoopNest& nest) const {
    return nest.inner() - index[static_cast<std::size_t>(nest.rank - 1)];
  }

 private:
  void advance_in(const LoopNest& nest, std::size_t dim, std::int64_t count);
};

}  // namespace lockstep::cpu_kernels
