#include "cpu/rows.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "cpu/copy.hpp"
#include "cpu/tiles.hpp"
#include "lockstep/core/parallel.hpp"

namespace lockstep::host {
namespace {

/// Sums chunks of partial sums, in their order, into a parameter's gradient.
template <class A>
void combine_partials(const ArrayView& out, const std::vector<A>& partials, std::int64_t columns,
                      bool accumulate) {
  if (!out) return;
  const auto chunks = static_cast<std::int64_t>(partials.size()) / columns;
  const auto size = static_cast<std::int64_t>(lockstep::size_of(out.dtype));
  const auto load = loops().load[static_cast<std::size_t>(out.dtype)];
  const auto store = loops().store(Accumulate::f64, out.dtype);
  const bool wide = accumulate_of(out.dtype) == Accumulate::f64;
  for (std::int64_t first = 0; first < columns; first += tile_elements) {
    const std::int64_t n = std::min(tile_elements, columns - first);
    std::array<double, tile_elements> total{}, before;
    if (accumulate) {
      load(before.data(), out.as<char>() + first * size, 1, n);
      for (std::int64_t i = 0; i < n; ++i)
        total[static_cast<std::size_t>(i)] =
            wide ? before[static_cast<std::size_t>(i)]
                 : static_cast<double>(reinterpret_cast<const float*>(before.data())[i]);
    }
    for (std::int64_t c = 0; c < chunks; ++c)
      for (std::int64_t i = 0; i < n; ++i)
        total[static_cast<std::size_t>(i)] +=
            static_cast<double>(partials[static_cast<std::size_t>(c * columns + first + i)]);
    store(out.as<char>() + first * size, 1, total.data(), n);
  }
}

template <class A>
void norm_backward_typed(RowLoop<NormArguments> loop, const NormArguments& arguments,
                         std::int64_t rows, const ArrayView& dweight, const ArrayView& dbias,
                         bool accumulate) {
  const std::int64_t columns = arguments.columns;
  // Chunks depend on the shape alone: the sums are the same at any thread count.
  const std::int64_t chunk =
      std::max<std::int64_t>(32, 131072 / std::max<std::int64_t>(1, columns));
  const std::int64_t chunks = std::max<std::int64_t>(1, (rows + chunk - 1) / chunk);
  const auto length = static_cast<std::size_t>(chunks * columns);
  std::vector<A> weight_sums(dweight ? length : 0), bias_sums(dbias ? length : 0);
  const auto body = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t c = begin; c < end; ++c) {
      NormArguments part = arguments;
      if (dweight) part.dweight = weight_sums.data() + c * columns;
      if (dbias) part.dbias = bias_sums.data() + c * columns;
      loop(part, c * chunk, std::min(rows, (c + 1) * chunk));
    }
  };
  parallel_for(chunks, 1, body);
  combine_partials(dweight, weight_sums, columns, accumulate);
  combine_partials(dbias, bias_sums, columns, accumulate);
}

void check_index(const ArrayView& index, std::int64_t rows, std::string_view op) {
  const std::int64_t n = index.numel();
  const auto* at = index.as<std::int64_t>();
  for (std::int64_t i = 0; i < n; ++i)
    LOCKSTEP_CHECK(at[i] >= 0 && at[i] < rows, InvalidArgument, op, ": index ", at[i],
                   " at position ", i, " is outside [0, ", rows, ")");
}

/// Positions of the index sorted by the row they name, in their order within a row.
struct Occurrences {
  std::vector<std::int64_t> start;  ///< of each row's positions; one more than there are rows
  std::vector<std::int64_t> position;
};

Occurrences find_occurrences(const ArrayView& index, std::int64_t rows) {
  const auto* at = index.as<std::int64_t>();
  const std::int64_t n = index.numel();
  Occurrences found{std::vector<std::int64_t>(static_cast<std::size_t>(rows) + 1),
                    std::vector<std::int64_t>(static_cast<std::size_t>(n))};
  for (std::int64_t i = 0; i < n; ++i) ++found.start[static_cast<std::size_t>(at[i]) + 1];
  for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r)
    found.start[r + 1] += found.start[r];
  std::vector<std::int64_t> next(found.start.begin(), found.start.end() - 1);
  for (std::int64_t i = 0; i < n; ++i)
    found.position[static_cast<std::size_t>(next[static_cast<std::size_t>(at[i])]++)] = i;
  return found;
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

}  // namespace

Widened::Widened(const ArrayView& view, Accumulate type) {
  if (!view) return;
  data_ = view.data;
  if (is_accumulate_type(view.dtype) && accumulate_of(view.dtype) == type) return;
  storage_.resize(static_cast<std::size_t>(view.numel()));
  data_ = storage_.data();
  const DType dtype = type == Accumulate::f64 ? DType::f64 : DType::f32;
  copy({storage_.data(), dtype, view.shape, contiguous_strides(view.shape)}, view);
}

void norm_backward(RowLoop<NormArguments> loop, NormArguments arguments, std::int64_t rows,
                   Accumulate type, const ArrayView& dweight, const ArrayView& dbias,
                   bool accumulate) {
  if (type == Accumulate::f64)
    norm_backward_typed<double>(loop, arguments, rows, dweight, dbias, accumulate);
  else
    norm_backward_typed<float>(loop, arguments, rows, dweight, dbias, accumulate);
}

void embedding(const ArrayView& out, const ArrayView& table, const ArrayView& index) {
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
}

void embedding_backward(const ArrayView& dtable, const ArrayView& dy, const ArrayView& index,
                        std::int64_t padding_index, bool accumulate) {
  const std::int64_t rows = dtable.shape[0];
  check_index(index, rows, "embedding_backward");
  if (!accumulate) fill(dtable, 0.0);
  const Occurrences found = find_occurrences(index, rows);
  parallel_for(
      rows, std::max<std::int64_t>(1, rows / 16), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          const std::int64_t first = found.start[static_cast<std::size_t>(row)];
          const std::int64_t count = found.start[static_cast<std::size_t>(row) + 1] - first;
          if (count > 0 && row != padding_index)
            add_rows(dtable, row, dy, found.position.data() + first, count);
        }
      });
}

}  // namespace lockstep::host
