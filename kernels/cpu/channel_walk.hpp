#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "cpu/channel_loops.hpp"
#include "lockstep/core/array_view.hpp"
#include "lockstep/core/function_ref.hpp"

/// @file
/// How batch norm walks images in memory order, whatever that order is.

namespace lockstep::cpu_kernels {

/// Up to four arrays [N, C, ...] of one shape and dtype as blocks of rows and columns.
///
/// Where neighbours in memory are neighbouring channels, a column is a channel, and several rows
/// that follow one another are taken as one, so that columns fill vectors: there are `fold` of
/// them. Where they are positions of one channel, a block is of that channel, a row an image
/// (`by_plane`).
class ChannelWalk {
 public:
  /// A part of the work: rows of one group of channels that lie at even distances.
  struct Piece {
    std::int64_t first_channel;
    std::int64_t rows;
    std::int64_t runs;  ///< images that have such rows each; one but by plane
    std::array<char*, 4> data;
  };
  /// Absent arrays are left out. @param side see ChannelBlock.
  ChannelWalk(const ArrayView& x, const ArrayView& dy, const ArrayView& out,
              const ArrayView& side = {});

  /// Channels that lie beside each other in a block: all, or one.
  std::int64_t channels_of_piece() const { return columns_; }
  std::int64_t fold() const { return fold_; }
  /// Whether all columns of a block are of one channel, which has one value in vectors.
  bool by_plane() const { return by_plane_; }
  /// Number of pieces, which depends on shape and order alone.
  std::int64_t pieces() const { return groups_ * pieces_of_group_; }
  /// Calls `body(piece index)` for all pieces, in parallel.
  void for_each_piece(FunctionRef<void(std::int64_t index)> body) const;
  Piece piece(std::int64_t index) const;
  /// Calls `visit(block)` for the blocks of a piece. Unless by plane the last may have one row of
  /// fewer columns, the rows that do not fill another fold.
  void for_each_block(const Piece& piece, FunctionRef<void(const ChannelBlock& block)> visit) const;

  /// One value a channel as blocks read it: those of piece p begin at `place(p)`.
  template <class A>
  std::vector<A> spread(const std::vector<double>& channels) const {
    std::vector<A> values;
    values.reserve(channels.size() * static_cast<std::size_t>(fold_));
    for (std::int64_t g = 0; g < groups_; ++g)
      for (std::int64_t f = 0; f < fold_; ++f)
        for (std::int64_t c = 0; c < columns_; ++c)
          values.push_back(static_cast<A>(channels[static_cast<std::size_t>(g * columns_ + c)]));
    return values;
  }
  std::int64_t place(const Piece& piece) const { return piece.first_channel * fold_; }

 private:
  struct Operand {
    char* data = nullptr;
    std::int64_t channel_stride = 0, run_stride = 0, row_stride = 0;
  };
  void for_each_plane_block(const Piece& piece, FunctionRef<void(const ChannelBlock&)> visit) const;

  std::array<Operand, 4> operands_;  // x, dy, out, side
  std::int64_t element_bytes_;
  bool by_plane_ = false;
  std::int64_t columns_, groups_, runs_, run_rows_, fold_ = 1;
  std::int64_t piece_rows_, pieces_of_run_, piece_runs_ = 1, pieces_of_group_;
};

}  // namespace lockstep::cpu_kernels
