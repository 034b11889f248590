#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/attention_kernels.hpp"
#include "cpu/scratch.hpp"
#include "cpu/typed_row.hpp"

/// @file
/// The memory that one thread works in during blocked attention.

namespace lockstep::backend {

/// `value` rounded up to a multiple of `unit`.
inline std::int64_t rounded_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

/// The extents of one call and the padded ones of its blocks.
struct Extents {
  std::int64_t heads_per_group, queries, keys, depth, width;  // as given: H / G, T, S, D, V
  std::int64_t block, padded_keys, padded_depth, padded_width;

  std::int64_t row_unit;  // of padded_keys

  Extents(const ArrayView& q, const ArrayView& k, const ArrayView& v)
      : Extents(q, k, v, 64, cpu_kernels::attention_loops().lanes,
                cpu_kernels::attention_loops().row_unit) {}
  /// @param most queries of a block. @param columns, rows the units of the loops' tiles.
  Extents(const ArrayView& q, const ArrayView& k, const ArrayView& v, std::int64_t most,
          std::int64_t columns, std::int64_t rows)
      : heads_per_group(q.shape[1] / k.shape[1]),
        queries(q.shape[2]),
        keys(k.shape[2]),
        depth(q.shape[3]),
        width(v.shape[3]),
        block(std::min(most, rounded_up(queries, columns))),
        padded_keys(rounded_up(keys, rows)),
        padded_depth(rounded_up(depth, columns)),
        padded_width(rounded_up(width, columns)),
        row_unit(rows) {}
};

/// One block of queries of one head.
struct QueryBlock {
  std::int64_t n, h, first, count;
  std::int64_t keys;         ///< how many are visible to any of the queries
  std::int64_t padded_keys;  ///< rounded up to whole register tiles
};

/// The block that starts with query `first`.
inline QueryBlock query_block(const Extents& e, bool causal, std::int64_t n, std::int64_t h,
                              std::int64_t first) {
  const std::int64_t count = std::min(e.block, e.queries - first);
  const std::int64_t keys = causal ? std::min(e.keys, first + count) : e.keys;
  return {n, h, first, count, keys, rounded_up(keys, e.row_unit)};
}

/// Rows of a head in float, padded with zeros: [rows, columns].
struct Block {
  float* data;
  std::int64_t rows, columns;

  float* row(std::int64_t i) const { return data + i * columns; }
  void clear() const { std::fill(data, data + rows * columns, 0.0f); }
  /// Reads rows [first, first + count) of a head, times `scale`.
  void load(const ArrayView& view, std::int64_t n, std::int64_t h, std::int64_t first,
            std::int64_t count, float scale = 1) const {
    const std::int64_t used = view.shape[3];
    for (std::int64_t t = 0; t < count; ++t) {
      cpu_kernels::load_row(row(t), view, offset(view, n, h, first + t), 1, used);
      if (scale != 1)
        for (std::int64_t d = 0; d < used; ++d) row(t)[d] *= scale;
      std::fill(row(t) + used, row(t) + columns, 0.0f);
    }
    std::fill(row(count), data + rows * columns, 0.0f);
  }
  /// Writes rows [first, first + count) of a head.
  void store(const ArrayView& view, std::int64_t n, std::int64_t h, std::int64_t first,
             std::int64_t count) const {
    for (std::int64_t t = 0; t < count; ++t)
      cpu_kernels::store_row(view, offset(view, n, h, first + t), 1, row(t), view.shape[3]);
  }
  cpu_kernels::StridedMatrix by_rows() const { return {data, columns, 1}; }

 private:
  static std::int64_t offset(const ArrayView& view, std::int64_t n, std::int64_t h,
                             std::int64_t t) {
    return n * view.strides[0] + h * view.strides[1] + t * view.strides[2];
  }
};

/// Adds the mask to scores [keys, queries] and hides what the queries may not see.
void apply_mask(const Block& scores, const QueryBlock& b, const ArrayView& mask, bool causal);

/// What backward takes off the scores of the block's queries, from lse [N, H, T]: infinity, which
/// leaves no probability, past the last query and for one that sees nothing.
void load_totals(float* to, const ArrayView& lse, const QueryBlock& b, const Extents& e);

/// The blocks that one thread works with.
struct Workspace {
  Block keys, values, query, query_t, result, scores;           // forward
  Block dkeys, dvalues, dquery, dresult, dresult_t, gradients;  // backward
  float *largest, *sum;

  Workspace(const Extents& e, bool backward) {
    Block* const both[] = {&keys, &values, &query, &query_t, &result, &scores};
    Block* const more[] = {&dkeys, &dvalues, &dquery, &dresult, &dresult_t, &gradients};
    keys = {nullptr, e.padded_keys, e.padded_depth};
    values = {nullptr, e.padded_keys, e.padded_width};
    query = {nullptr, e.block, e.padded_depth};
    query_t = {nullptr, e.padded_depth, e.block};
    result = {nullptr, e.block, e.padded_width};
    scores = {nullptr, e.padded_keys, e.block};
    dkeys = keys, dvalues = values, dquery = query, dresult = result, gradients = scores;
    dresult_t = {nullptr, e.padded_width, e.block};
    std::int64_t total = 2 * e.block;
    for (const Block* b : both) total += b->rows * b->columns;
    for (const Block* b : more) total += backward ? b->rows * b->columns : 0;
    static thread_local cpu_kernels::Scratch scratch;
    float* next = scratch.get<float>(static_cast<std::size_t>(total));
    const auto place = [&](Block* b) { next = (b->data = next) + b->rows * b->columns; };
    for (Block* b : both) place(b);
    if (backward)
      for (Block* b : more) place(b);
    largest = next;
    sum = next + e.block;
  }
};

}  // namespace lockstep::backend
