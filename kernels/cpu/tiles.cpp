#include "cpu/tiles.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "cpu/raw.hpp"
#include "lockstep/core/parallel.hpp"

namespace lockstep::cpu_kernels {
namespace {

/// One thread's walk over a part of the nest.
class TileWalk {
 public:
  TileWalk(const LoopNest& nest, std::span<const TileOperand> operands)
      : nest_(nest), operands_(operands), by_row_(nest.inner() >= long_row || nest.rank == 1) {
    for (std::size_t k = 0; k < operands.size(); ++k) {
      const int operand = static_cast<int>(k);
      in_place_[k] = operands[k].direct &&
                     (by_row_ ? nest.inner_stride(operand) == 1 : nest.is_linear(operand));
      constant_[k] = operands[k].load_rows && nest.is_scalar(operand);
      all_in_place_ &= in_place_[k];
    }
  }

  void run(std::int64_t begin, std::int64_t end, PlacedTileLoop loop) {
    load_constants(end - begin);
    cursor_.seek(nest_, begin);
    for (std::int64_t at = begin; at < end;) {
      const std::int64_t n = piece(end - at);
      std::array<void*, max_operands> pointers{};
      for (std::size_t k = 0; k < operands_.size(); ++k) pointers[k] = load(k, n);
      loop(pointers.data(), at, n);
      for (std::size_t k = 0; k < operands_.size(); ++k)
        if (operands_[k].store && !in_place_[k]) store(k, n);
      at += n;
      if (by_row_)
        cursor_.advance(nest_, n);
      else
        cursor_.seek(nest_, at);
    }
  }

 private:
  std::int64_t piece(std::int64_t left) const {
    if (by_row_) left = std::min(left, cursor_.row_left(nest_));
    if (all_in_place_ || left <= tile_elements) return left;
    if (by_row_) return tile_elements;
    // Of short rows the rest of one that is begun, and whole ones.
    const std::int64_t rest = cursor_.row_left(nest_) % nest_.inner();
    return tile_elements - (tile_elements - rest) % nest_.inner();
  }

  void load_constants(std::int64_t count) {
    for (std::size_t k = 0; k < operands_.size(); ++k)
      if (constant_[k])
        operands_[k].load_rows(tile(k), {.from = operands_[k].data,
                                         .row_stride = 0,
                                         .stride = 0,
                                         .rows = 1,
                                         .columns = std::min(count, tile_elements)});
  }

  /// Calls `visit(cursor, first, rows, columns)` for the parts of the next n elements: rows of the
  /// innermost dimension, whole ones as many as the dimension outside it has, or a part of one.
  template <class Visitor>
  void walk(Cursor cursor, std::int64_t n, Visitor visit) const {
    for (std::int64_t first = 0; first < n;) {
      if (const std::int64_t rows = cursor.whole_rows(nest_, n - first); rows > 0) {
        visit(cursor, first, rows, nest_.inner());
        cursor.advance_rows(nest_, rows);
        first += rows * nest_.inner();
      } else {
        const std::int64_t count = std::min(n - first, cursor.row_left(nest_));
        visit(cursor, first, std::int64_t{1}, count);
        cursor.advance(nest_, count);
        first += count;
      }
    }
  }

  char* tile(std::size_t k) { return tiles_.data() + k * tile_elements * sizeof(double); }

  char* place(std::size_t k, const Cursor& cursor) const {
    return operands_[k].data + cursor.offset[k] * static_cast<std::int64_t>(operands_[k].size);
  }

  /// Where the loop finds operand k: in memory, or in its tile, filled if it is an input.
  void* load(std::size_t k, std::int64_t n) {
    if (in_place_[k]) return place(k, cursor_);
    const TileOperand& operand = operands_[k];
    if (operand.load_rows && !constant_[k])
      walk(cursor_, n,
           [&](const Cursor& at, std::int64_t first, std::int64_t rows, std::int64_t columns) {
             operand.load_rows(tile(k) + first * static_cast<std::int64_t>(operand.tile_size),
                               {.from = place(k, at),
                                .row_stride = nest_.row_stride(static_cast<int>(k)),
                                .stride = nest_.inner_stride(static_cast<int>(k)),
                                .rows = rows,
                                .columns = columns});
           });
    return tile(k);
  }

  void store(std::size_t k, std::int64_t n) {
    const TileOperand& operand = operands_[k];
    const auto size = static_cast<std::int64_t>(operand.size),
               tile_size = static_cast<std::int64_t>(operand.tile_size);
    const std::int64_t stride = nest_.inner_stride(static_cast<int>(k)),
                       row_stride = nest_.row_stride(static_cast<int>(k));
    walk(cursor_, n,
         [&](const Cursor& at, std::int64_t first, std::int64_t rows, std::int64_t columns) {
           if (stride == 1 && row_stride == columns) columns *= std::exchange(rows, 1);
           for (std::int64_t r = 0; r < rows; ++r)
             operand.store(place(k, at) + r * row_stride * size, stride,
                           tile(k) + (first + r * columns) * tile_size, columns);
         });
  }

  const LoopNest& nest_;
  std::span<const TileOperand> operands_;
  Cursor cursor_;
  bool by_row_, all_in_place_ = true;
  std::array<bool, max_operands> in_place_{}, constant_{};
  alignas(64) std::array<char, max_operands * tile_elements * sizeof(double)> tiles_;
};

TileOperand describe(const ArrayView& view, Accumulate type) {
  TileOperand operand;
  operand.data = static_cast<char*>(view.data);
  operand.size = lockstep::size_of(view.dtype);
  operand.tile_size = size_of(type);
  operand.direct = is_accumulate_type(view.dtype) && type == accumulate_of(view.dtype);
  return operand;
}

TileOperand describe_raw(const ArrayView& view) {
  TileOperand operand;
  operand.data = static_cast<char*>(view.data);
  operand.size = operand.tile_size = lockstep::size_of(view.dtype);
  operand.direct = true;
  return operand;
}

}  // namespace

TileOperand TileOperand::input(const ArrayView& view) {
  TileOperand operand = describe(view, accumulate_of(view.dtype));
  operand.load_rows = loops().load_rows[static_cast<std::size_t>(view.dtype)];
  return operand;
}

TileOperand TileOperand::output(const ArrayView& view) {
  return output(view, accumulate_of(view.dtype));
}

TileOperand TileOperand::output(const ArrayView& view, Accumulate type) {
  TileOperand operand = describe(view, type);
  operand.store = loops().store(type, view.dtype);
  return operand;
}

TileOperand TileOperand::raw_input(const ArrayView& view) {
  TileOperand operand = describe_raw(view);
  operand.load_rows = raw_load_rows(operand.size);
  return operand;
}

TileOperand TileOperand::raw_output(const ArrayView& view) {
  TileOperand operand = describe_raw(view);
  operand.store = raw_store(operand.size);
  return operand;
}

void run_tiled_at(const LoopNest& nest, std::span<const TileOperand> operands,
                  PlacedTileLoop loop) {
  if (nest.total == 0) return;
  parallel_for(nest.total, parallel_grain, [&](std::int64_t begin, std::int64_t end) {
    TileWalk(nest, operands).run(begin, end, loop);
  });
}

void run_tiled(const LoopNest& nest, std::span<const TileOperand> operands, TileLoop loop) {
  run_tiled_at(nest, operands,
               [&](void* const* pointers, std::int64_t, std::int64_t n) { loop(pointers, n); });
}

}  // namespace lockstep::cpu_kernels
