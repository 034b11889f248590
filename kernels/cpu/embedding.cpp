#include "arguments/embedding.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "arguments/elementwise.hpp"
#include "cpu/rows.hpp"
#include "cpu/tiles.hpp"
#include "lockstep/core/parallel.hpp"

namespace lockstep::cpu_kernels {
namespace {

void check_index(const ArrayView& index, std::int64_t rows, std::string_view op) {
  const std::int64_t n = index.numel();
  const auto* at = index.as<std::int64_t>();
  for (std::int64_t i = 0; i < n; ++i)
    LOCKSTEP_CHECK(at[i] >= 0 && at[i] < rows, InvalidArgument, op, ": index ", at[i],
                   " at position ", i, " is outside [0, ", rows, ")");
}

/// Positions of the index sorted by the row they name, in their order within a row.
struct Occurrences {
  struct Row {
    std::int64_t row, first, count;  ///< of its positions
  };
  std::vector<Row> rows;  ///< those that are named
  std::vector<std::int64_t> position;

  void add(std::int64_t row, std::int64_t first, std::int64_t end) {
    if (end > first) rows.push_back({row, first, end - first});
  }
};

/// Takes as long as the table is.
Occurrences count_occurrences(const std::int64_t* at, std::int64_t n, std::int64_t rows) {
  std::vector<std::int64_t> next(static_cast<std::size_t>(rows) + 1);
  for (std::int64_t i = 0; i < n; ++i) ++next[static_cast<std::size_t>(at[i]) + 1];
  Occurrences found{{}, std::vector<std::int64_t>(static_cast<std::size_t>(n))};
  for (std::int64_t row = 0; row < rows; ++row) {
    auto* const first = &next[static_cast<std::size_t>(row)];
    first[1] += first[0];
    found.add(row, first[0], first[1]);
  }
  for (std::int64_t i = 0; i < n; ++i)
    found.position[static_cast<std::size_t>(next[static_cast<std::size_t>(at[i])]++)] = i;
  return found;
}

/// Takes as long as the index is: for few rows of a large table.
Occurrences sort_occurrences(const std::int64_t* at, std::int64_t n) {
  std::vector<std::pair<std::int64_t, std::int64_t>> sorted;  // row and position
  sorted.reserve(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) sorted.emplace_back(at[i], i);
  std::ranges::sort(sorted);
  Occurrences found;
  std::int64_t first = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto& [row, position] = sorted[static_cast<std::size_t>(i)];
    found.position.push_back(position);
    if (i + 1 < n && sorted[static_cast<std::size_t>(i) + 1].first == row) continue;
    found.add(row, first, i + 1);
    first = i + 1;
  }
  return found;
}

Occurrences find_occurrences(const ArrayView& index, std::int64_t rows) {
  constexpr std::int64_t rows_counted_while_one_is_sorted = 16;
  const auto* at = index.as<std::int64_t>();
  const std::int64_t n = index.numel();
  return rows / rows_counted_while_one_is_sorted > n ? sort_occurrences(at, n)
                                                     : count_occurrences(at, n, rows);
}

/// Adds the named rows of dy to one row of the table's gradient, tile by tile.
void add_rows(const ArrayView& dtable, std::int64_t row, const ArrayView& dy,
              const std::int64_t* positions, std::int64_t count) {
  const Accumulate type = accumulate_of(dtable.dtype);
  const auto add = loops().reduce_columns(type, ReduceOp::sum);
  const auto load = loops().load[static_cast<std::size_t>(dtable.dtype)];
  const auto store = loops().store(type, dtable.dtype);
  const bool direct = is_accumulate_type(dtable.dtype);
  const auto size = static_cast<std::int64_t>(lockstep::size_of(dtable.dtype));
  const std::int64_t columns = dtable.shape.back();
  std::array<double, tile_elements> total, term;
  for (std::int64_t first = 0; first < columns; first += tile_elements) {
    const std::int64_t n = std::min(tile_elements, columns - first);
    char* const to = dtable.as<char>() + (row * columns + first) * size;
    void* const sum = direct ? static_cast<void*>(to) : total.data();
    if (!direct) load(sum, to, 1, n);
    for (std::int64_t i = 0; i < count; ++i) {
      const void* from = dy.as<char>() + (positions[i] * columns + first) * size;
      if (!direct) load(term.data(), from, 1, n);
      add(sum, direct ? from : term.data(), 0, 1, n);
    }
    if (!direct) store(to, 1, sum, n);
  }
}

/// Adds the rows of an array to every so many of another's.
void add_to_rows(ArrayView out, ArrayView addend, StreamRef stream) {
  const std::int64_t rows = addend.shape[0], columns = addend.shape[1];
  if (out.numel() == 0) return;
  out.shape = addend.shape = {out.shape[0] / rows, rows, columns};
  out.strides = contiguous_strides(out.shape);
  addend.strides = {0, columns, 1};
  elementwise::binary({.op = BinaryOp::add, .out = out, .a = out, .b = addend}, stream);
}

}  // namespace

void embedding::forward(const kernels::EmbeddingArguments& a, StreamRef stream) {
  require_rows("embedding", {&a.table, &a.out});
  const auto& [out, table, index, addend] = a;
  check_index(index, table.shape[0], "embedding");
  const std::int64_t columns = table.shape.back();
  const std::size_t bytes = static_cast<std::size_t>(columns) * lockstep::size_of(table.dtype);
  const auto* at = index.as<std::int64_t>();
  parallel_for(index.numel(),
               std::max<std::int64_t>(1, parallel_grain / std::max<std::int64_t>(1, columns)),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end && bytes > 0; ++i)
                   std::memcpy(out.as<char>() + static_cast<std::size_t>(i) * bytes,
                               table.as<char>() + static_cast<std::size_t>(at[i]) * bytes, bytes);
               });
  if (addend) add_to_rows(out, addend, stream);
}

// Each row's gradients are added in the order of the index.
void embedding::backward(const kernels::EmbeddingBackwardArguments& a, StreamRef stream) {
  require_rows("embedding_backward", {&a.dtable, &a.dy});
  const auto& [dtable, dy, index, padding_index, accumulate] = a;
  const std::int64_t rows = dtable.shape[0];
  check_index(index, rows, "embedding_backward");
  if (!accumulate) elementwise::fill({.out = dtable, .value = 0.0}, stream);
  const Occurrences found = find_occurrences(index, rows);
  const std::int64_t named = std::ssize(found.rows);
  parallel_for(named, std::max<std::int64_t>(1, named / 16),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i) {
                   const auto& [row, first, count] = found.rows[static_cast<std::size_t>(i)];
                   if (row != padding_index)
                     add_rows(dtable, row, dy, found.position.data() + first, count);
                 }
               });
}

}  // namespace lockstep::cpu_kernels
