#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "cpu/reduce_plan.hpp"
#include "cpu/tiles.hpp"
#include "lockstep/core/parallel.hpp"

/// @file
/// Reductions whose innermost dimension is kept.

namespace lockstep::cpu_kernels {

/// One band of neighbouring outputs whose inputs are neighbours too.
template <class T>
class ColumnFold {
 public:
  explicit ColumnFold(const ReducePlan& plan)
      : plan_(plan),
        loop_(loops().reduce_columns(plan.type, plan.op)),
        load_(loops().load[static_cast<std::size_t>(plan.in.dtype)]),
        direct_(is_accumulate_type(plan.in.dtype)) {}

  /// Combines rows [begin, end) of the folded nest into n partials for the outputs from `base` on.
  void fold(T* partial, std::int64_t base, std::int64_t n, std::int64_t begin, std::int64_t end) {
    Cursor cursor;
    cursor.seek(plan_.folded, begin);
    for (std::int64_t at = begin; at < end;) {
      std::int64_t rows = std::min(end - at, cursor.row_left(plan_.folded));
      const std::int64_t stride = plan_.folded.inner_stride(0);
      if (direct_) {
        loop_(partial, input_at(plan_, base + cursor.offset[0]), stride, rows, n);
      } else {
        rows = std::min<std::int64_t>(rows, 4);
        for (std::int64_t r = 0; r < rows; ++r)
          load_(tile_.data() + r * n, input_at(plan_, base + cursor.offset[0] + r * stride), 1, n);
        loop_(partial, tile_.data(), n, rows, n);
      }
      cursor.advance(plan_.folded, rows);
      at += rows;
    }
  }

 private:
  const ReducePlan& plan_;
  ReduceColumnsLoop loop_;
  LoadLoop load_;
  bool direct_;
  alignas(64) std::array<T, 4 * tile_elements> tile_;
};

/// Bands of one chunk of rows: each is folded where its results are kept, if they are T that lie
/// side by side, else in a tile.
template <class T, class P>
void reduce_short_columns(const ReducePlan& plan, std::int64_t width) {
  const std::int64_t inner = plan.kept.inner(), rows = plan.folded.total;
  const std::int64_t bands = (inner + width - 1) / width;
  const bool in_place = plan.out.dtype == dtype_of<T> && plan.kept.inner_stride(0) == 1;
  const std::int64_t grain = std::max<std::int64_t>(1, parallel_grain / (rows * width));
  parallel_for(plan.kept.total / inner * bands, grain, [&](std::int64_t begin, std::int64_t end) {
    ColumnFold<T> columns(plan);
    alignas(64) std::array<T, tile_elements> tile;
    std::array<P, tile_elements> totals;
    Cursor cursor;
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t at = task % bands * width, n = std::min(width, inner - at);
      cursor.seek(plan.kept, task / bands * inner + at);
      T* const partial = in_place ? plan.out.as<T>() + cursor.offset[0] : tile.data();
      std::fill_n(partial, n, identity<T>(plan.op));
      columns.fold(partial, cursor.offset[1], n, 0, rows);
      if (!in_place) {
        std::copy_n(partial, n, totals.begin());
        store_results(plan, cursor, totals.data(), n);
      } else if (plan.op == ReduceOp::mean) {  // T has the number of rows, which are few
        loops().unary(plan.type, UnaryOp::div_scalar)(partial, partial, n,
                                                      {.alpha = static_cast<double>(rows)});
      }
    }
  });
}

/// The innermost dimension is kept: rows are added to each other, band of columns by band, each
/// band in chunks of rows of fixed size. Partials of a chunk are T, their totals P.
template <class T, class P>
void reduce_by_columns(const ReducePlan& plan) {
  const std::int64_t inner = plan.kept.inner(), rows = plan.folded.total;
  const std::int64_t width = std::min(inner, tile_elements);
  if (rows <= std::max<std::int64_t>(64, chunk_elements / width) && !plan.accumulate)
    return reduce_short_columns<T, P>(plan, width);
  const std::int64_t bands = (inner + width - 1) / width, outer = plan.kept.total / inner;
  const std::int64_t chunk_rows = std::max<std::int64_t>(64, chunk_elements / width);
  const std::int64_t chunks = (rows + chunk_rows - 1) / chunk_rows;
  std::vector<T> partials(static_cast<std::size_t>(outer * bands * chunks * width),
                          identity<T>(plan.op));
  const auto partial_of = [&](std::int64_t band, std::int64_t chunk) {
    return partials.data() + (band * chunks + chunk) * width;
  };
  const auto grain =
      std::max<std::int64_t>(1, parallel_grain / (std::min(rows, chunk_rows) * width));
  // Chunk by chunk, and band by band within: neighbours in memory are folded one after another.
  parallel_for(outer * chunks * bands, grain, [&](std::int64_t begin, std::int64_t end) {
    ColumnFold<T> columns(plan);
    Cursor cursor;
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t band = task % bands, chunk = task / bands % chunks;
      const std::int64_t block = task / bands / chunks, first = chunk * chunk_rows;
      cursor.seek(plan.kept, block * inner + band * width);
      columns.fold(partial_of(block * bands + band, chunk), cursor.offset[1],
                   std::min(width, inner - band * width), first,
                   std::min(rows, first + chunk_rows));
    }
  });
  parallel_for(outer * bands, std::max<std::int64_t>(1, parallel_grain / (chunks * width)),
               [&](std::int64_t begin, std::int64_t end) {
                 std::array<P, tile_elements> totals;
                 Cursor cursor;
                 for (std::int64_t band = begin; band < end; ++band) {
                   const std::int64_t at = band % bands * width, n = std::min(width, inner - at);
                   std::fill_n(totals.begin(), n, identity<P>(plan.op));
                   with_op(plan.op, [&](auto op) {
                     for (std::int64_t c = 0; c < chunks; ++c)
                       for (std::int64_t i = 0; i < n; ++i)
                         functional::reduction_combine<op()>(
                             totals[static_cast<std::size_t>(i)],
                             static_cast<P>(partial_of(band, c)[i]));
                   });
                   cursor.seek(plan.kept, band / bands * inner + at);
                   store_results(plan, cursor, totals.data(), n);
                 }
               });
}

}  // namespace lockstep::cpu_kernels
