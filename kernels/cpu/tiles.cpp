#include "cpu/tiles.hpp"

#include <algorithm>
#include <array>

#include "cpu/raw.hpp"
#include "lockstep/core/parallel.hpp"

namespace lockstep::cpu_kernels {
namespace {

/// Rows at least this long are handed to the loop one at a time; shorter ones are gathered.
constexpr std::int64_t long_row = 64;

/// One thread's walk over a part of the nest.
class TileWalk {
 public:
  TileWalk(const LoopNest& nest, std::span<const TileOperand> operands)
      : nest_(nest), operands_(operands), by_row_(nest.inner() >= long_row || nest.rank == 1) {
    for (std::size_t k = 0; k < operands.size(); ++k) {
      const int operand = static_cast<int>(k);
      in_place_[k] = operands[k].direct &&
                     (by_row_ ? nest.inner_stride(operand) == 1 : nest.is_linear(operand));
      constant_[k] = operands[k].load && nest.is_scalar(operand);
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
      walk(cursor_, n, [](const Cursor&, std::int64_t, std::int64_t) {});
      at += n;
    }
  }

 private:
  std::int64_t piece(std::int64_t left) const {
    if (by_row_) left = std::min(left, cursor_.row_left(nest_));
    return all_in_place_ ? left : std::min(left, tile_elements);
  }

  void load_constants(std::int64_t count) {
    for (std::size_t k = 0; k < operands_.size(); ++k)
      if (constant_[k])
        operands_[k].load(tile(k), operands_[k].data, 0, std::min(count, tile_elements));
  }

  /// Calls `visit(cursor, first, count)` for each run of one row within the next n elements.
  template <class Visitor>
  void walk(Cursor& cursor, std::int64_t n, Visitor visit) const {
    for (std::int64_t first = 0; first < n;) {
      const std::int64_t count = std::min(n - first, cursor.row_left(nest_));
      visit(cursor, first, count);
      cursor.advance(nest_, count);
      first += count;
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
    if (operand.load && !constant_[k]) {
      Cursor cursor = cursor_;
      walk(cursor, n, [&](const Cursor& at, std::int64_t first, std::int64_t count) {
        operand.load(tile(k) + first * static_cast<std::int64_t>(operand.tile_size), place(k, at),
                     nest_.inner_stride(static_cast<int>(k)), count);
      });
    }
    return tile(k);
  }

  void store(std::size_t k, std::int64_t n) {
    const TileOperand& operand = operands_[k];
    Cursor cursor = cursor_;
    walk(cursor, n, [&](const Cursor& at, std::int64_t first, std::int64_t count) {
      operand.store(place(k, at), nest_.inner_stride(static_cast<int>(k)),
                    tile(k) + first * static_cast<std::int64_t>(operand.tile_size), count);
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
  operand.load = loops().load[static_cast<std::size_t>(view.dtype)];
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
  operand.load = raw_load(operand.size);
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
