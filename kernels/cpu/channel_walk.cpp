#include "cpu/channel_walk.hpp"

#include <algorithm>
#include <numeric>

#include "cpu/image.hpp"
#include "cpu/tiles.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/parallel.hpp"

namespace lockstep::cpu_kernels {
namespace {

// A block of one array stays in the second-level cache between two passes, and is short enough for
// sums in the accumulation type.
constexpr std::int64_t block_bytes = 524288, most_block_rows = 256;
// As many of one channel, for the same reasons.
constexpr std::int64_t plane_block_elements = 8192;
// Columns from which whole vectors are most of a row.
constexpr std::int64_t wide_row = 256, vector_columns = 32;
// Pieces are so large, and those of a run so few, that their partial sums cost little.
constexpr std::int64_t piece_elements = 2 * parallel_grain, most_pieces = 64;

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

ChannelWalk::ChannelWalk(const ArrayView& x, const ArrayView& dy, const ArrayView& out,
                         const ArrayView& side)
    : element_bytes_(static_cast<std::int64_t>(size_of(x.dtype))) {
  const Planes shape(x);
  const std::array views{&x, &dy, &out, &side};
  bool together = true, merged = true;
  for (std::size_t k = 0; k < views.size(); ++k) {
    if (!*views[k]) continue;
    const Planes planes(*views[k]);
    LOCKSTEP_CHECK(views[k]->dtype == x.dtype && views[k]->shape == x.shape, InvalidArgument,
                   "batch_norm: operands ", x.dtype, ' ', x.shape, " and ", views[k]->dtype, ' ',
                   views[k]->shape, " differ");
    const std::int64_t row = planes.positions == 1 ? planes.image_stride : planes.position_stride;
    operands_[k] = {views[k]->as<char>(), planes.channel_stride, planes.image_stride, row};
    together = together && (planes.channels == 1 || planes.channel_stride == 1);
    merged = merged && (planes.images == 1 || planes.image_stride == planes.positions * row);
  }
  columns_ = together ? shape.channels : 1;
  groups_ = shape.channels / columns_;
  runs_ = merged ? 1 : shape.images;
  run_rows_ = merged ? shape.images * shape.positions : shape.positions;
  const bool dense = std::ranges::all_of(operands_, [&](const Operand& operand) {
    return !operand.data || operand.row_stride == columns_;
  });
  by_plane_ = dense && columns_ == 1;
  if (dense && !by_plane_ && columns_ < wide_row)
    fold_ = vector_columns / std::gcd(vector_columns, columns_);
  const std::int64_t least = divide_up(piece_elements, columns_);
  piece_rows_ = std::max(least, divide_up(run_rows_, most_pieces));
  piece_rows_ = divide_up(piece_rows_, fold_) * fold_;
  pieces_of_run_ = divide_up(run_rows_, piece_rows_);
  if (by_plane_ && pieces_of_run_ == 1)
    piece_runs_ = std::clamp<std::int64_t>(piece_elements / std::max<std::int64_t>(1, run_rows_), 1,
                                           std::max<std::int64_t>(1, runs_));
  pieces_of_group_ = divide_up(runs_, piece_runs_) * pieces_of_run_;
}

void ChannelWalk::for_each_piece(FunctionRef<void(std::int64_t)> body) const {
  const std::int64_t elements = columns_ * std::min(piece_rows_, run_rows_) * piece_runs_;
  const std::int64_t grain = std::max<std::int64_t>(1, parallel_grain / elements);
  parallel_for(pieces(), grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) body(i);
  });
}

ChannelWalk::Piece ChannelWalk::piece(std::int64_t index) const {
  const std::int64_t group = index / pieces_of_group_, part = index % pieces_of_group_;
  const std::int64_t run = part / pieces_of_run_ * piece_runs_;
  const std::int64_t first = part % pieces_of_run_ * piece_rows_;
  Piece piece{group * columns_,
              std::min(piece_rows_, run_rows_ - first),
              std::min(piece_runs_, runs_ - run),
              {}};
  for (std::size_t k = 0; k < operands_.size(); ++k) {
    const auto& [data, channel, image, row] = operands_[k];
    if (data)
      piece.data[k] =
          data + (piece.first_channel * channel + run * image + first * row) * element_bytes_;
  }
  return piece;
}

void ChannelWalk::for_each_plane_block(const Piece& piece,
                                       FunctionRef<void(const ChannelBlock&)> visit) const {
  const std::int64_t runs =
      std::max<std::int64_t>(1, plane_block_elements / std::max<std::int64_t>(1, piece.rows));
  ChannelBlock block{.x_stride = operands_[0].run_stride,
                     .dy_stride = operands_[1].run_stride,
                     .out_stride = operands_[2].run_stride,
                     .side_stride = operands_[3].run_stride};
  for (std::int64_t run = 0; run < piece.runs; run += runs)
    for (std::int64_t first = 0; first < piece.rows; first += plane_block_elements) {
      char** const to[] = {&block.x, &block.dy, &block.out, &block.side};
      for (std::size_t k = 0; k < operands_.size(); ++k)
        if (piece.data[k])
          *to[k] = piece.data[k] + (run * operands_[k].run_stride + first) * element_bytes_;
      block.rows = std::min(runs, piece.runs - run);
      block.columns = std::min(plane_block_elements, piece.rows - first);
      visit(block);
    }
}

void ChannelWalk::for_each_block(const Piece& piece,
                                 FunctionRef<void(const ChannelBlock&)> visit) const {
  if (by_plane_) return for_each_plane_block(piece, visit);
  const std::int64_t columns = columns_ * fold_;
  const std::int64_t rows_of_block =
      std::clamp<std::int64_t>(block_bytes / (columns * element_bytes_), 1, most_block_rows);
  ChannelBlock block{.x = piece.data[0],
                     .dy = piece.data[1],
                     .out = piece.data[2],
                     .side = piece.data[3],
                     .x_stride = operands_[0].row_stride * fold_,
                     .dy_stride = operands_[1].row_stride * fold_,
                     .out_stride = operands_[2].row_stride * fold_,
                     .side_stride = operands_[3].row_stride * fold_,
                     .columns = columns};
  const auto take = [&](std::int64_t rows) {
    block.rows = rows;
    visit(block);
    for (const auto& [data, stride] : {std::pair{&block.x, block.x_stride},
                                       {&block.dy, block.dy_stride},
                                       {&block.out, block.out_stride},
                                       {&block.side, block.side_stride}})
      if (*data) *data += rows * stride * element_bytes_;
  };
  const std::int64_t whole = piece.rows / fold_;
  for (std::int64_t r = 0; r < whole; r += rows_of_block) take(std::min(rows_of_block, whole - r));
  block.columns = columns_ * (piece.rows % fold_);
  if (block.columns > 0) take(1);
}

}  // namespace lockstep::cpu_kernels
