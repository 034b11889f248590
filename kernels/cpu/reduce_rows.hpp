#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "cpu/reduce_plan.hpp"
#include "cpu/tiles.hpp"
#include "lockstep/core/parallel.hpp"

/// @file
/// Reductions whose innermost dimension is folded.

namespace lockstep::cpu_kernels {

/// True if the loops read the innermost rows where they lie.
inline bool is_direct(const ReducePlan& plan) {
  return plan.folded.inner_stride(0) == 1 && is_accumulate_type(plan.in.dtype);
}

/// Folds a range of the folded nest for the output at `base` by its innermost rows.
template <class P>
P fold_rows(const ReducePlan& plan, std::int64_t base, std::int64_t begin, std::int64_t end) {
  const auto loop = loops().reduce_rows(plan.type, plan.op);
  const auto load = loops().load[static_cast<std::size_t>(plan.in.dtype)];
  const std::int64_t stride = plan.folded.inner_stride(0);
  const bool direct = is_direct(plan);
  alignas(64) std::array<double, tile_elements> tile;
  P partial = identity<P>(plan.op);
  Cursor cursor;
  cursor.seek(plan.folded, begin);
  for (std::int64_t at = begin; at < end;) {
    std::int64_t n = std::min(end - at, cursor.row_left(plan.folded));
    const char* from = input_at(plan, base + cursor.offset[0]);
    if (direct) {
      loop(&partial, from, 0, 1, n);
    } else {
      n = std::min(n, tile_elements);
      load(tile.data(), from, stride, n);
      loop(&partial, tile.data(), 0, 1, n);
    }
    cursor.advance(plan.folded, n);
    at += n;
  }
  return partial;
}

/// True if each output is one row of a chunk at most, which is short or can be read in place.
inline bool is_of_single_rows(const ReducePlan& plan) {
  if (plan.folded.rank != 1 || plan.folded.total > chunk_elements) return false;
  return plan.folded.total <= tile_elements / 4 || is_direct(plan);
}

/// Each output is one row: many of them are loaded, folded and stored by one call.
template <class P>
void reduce_single_rows(const ReducePlan& plan) {
  const auto loop = loops().reduce_rows(plan.type, plan.op);
  const auto load = loops().load[static_cast<std::size_t>(plan.in.dtype)];
  const std::int64_t columns = plan.folded.total, stride = plan.folded.inner_stride(0);
  const std::int64_t row_stride = plan.kept.inner_stride(1);
  const bool direct = is_direct(plan), adjacent = stride == 1 && row_stride == columns;
  const std::int64_t most = direct ? tile_elements : tile_elements / columns;
  const auto width = static_cast<std::int64_t>(size_of(plan.type));
  const std::int64_t grain = std::max<std::int64_t>(1, parallel_grain / columns);
  parallel_for(plan.kept.total, grain, [&](std::int64_t begin, std::int64_t end) {
    alignas(64) std::array<double, tile_elements> tile;
    std::array<P, tile_elements> partials;
    char* const elements = reinterpret_cast<char*>(tile.data());
    Cursor cursor;
    cursor.seek(plan.kept, begin);
    for (std::int64_t at = begin; at < end;) {
      const std::int64_t n = std::min({end - at, most, cursor.row_left(plan.kept)});
      const std::int64_t from = cursor.offset[1];
      std::fill_n(partials.begin(), n, identity<P>(plan.op));
      if (direct) {
        loop(partials.data(), input_at(plan, from), row_stride, n, columns);
      } else {
        if (adjacent)
          load(elements, input_at(plan, from), 1, n * columns);
        else
          for (std::int64_t r = 0; r < n; ++r)
            load(elements + r * columns * width, input_at(plan, from + r * row_stride), stride,
                 columns);
        loop(partials.data(), elements, columns, n, columns);
      }
      store_results(plan, cursor, partials.data(), n);
      cursor.advance(plan.kept, n);
      at += n;
    }
  });
}

/// The innermost dimension is folded: each output is a sum of rows, in chunks of fixed size.
template <class P>
void reduce_by_rows(const ReducePlan& plan) {
  const std::int64_t outputs = plan.kept.total, folded = plan.folded.total;
  if (is_of_single_rows(plan)) return reduce_single_rows<P>(plan);
  const std::int64_t chunks = (folded + chunk_elements - 1) / chunk_elements;
  std::vector<P> partials(chunks > 1 ? static_cast<std::size_t>(outputs * chunks) : 0);
  const std::int64_t grain =
      std::max<std::int64_t>(1, parallel_grain / std::min(folded, chunk_elements));
  parallel_for(outputs * chunks, grain, [&](std::int64_t begin, std::int64_t end) {
    Cursor cursor;
    for (std::int64_t task = begin; task < end; ++task) {
      if (task == begin || task % chunks == 0) cursor.seek(plan.kept, task / chunks);
      const std::int64_t first = task % chunks * chunk_elements;
      P partial =
          fold_rows<P>(plan, cursor.offset[1], first, std::min(folded, first + chunk_elements));
      if (chunks > 1)
        partials[static_cast<std::size_t>(task)] = partial;
      else
        store_results(plan, cursor, &partial, 1);
    }
  });
  if (chunks == 1) return;
  Cursor cursor;
  cursor.seek(plan.kept, 0);
  for (std::int64_t output = 0; output < outputs; ++output) {
    P total = identity<P>(plan.op);
    for (std::int64_t c = 0; c < chunks; ++c)
      total = combine(plan.op, total, partials[static_cast<std::size_t>(output * chunks + c)]);
    store_results(plan, cursor, &total, 1);
    cursor.advance(plan.kept, 1);
  }
}

}  // namespace lockstep::cpu_kernels
