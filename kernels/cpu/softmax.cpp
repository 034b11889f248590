#include "arguments/softmax.hpp"

#include <algorithm>

#include "cpu/raw.hpp"
#include "cpu/rows.hpp"
#include "cpu/scratch.hpp"

namespace lockstep::cpu_kernels {
namespace {

/// Runs `across` for contiguous rows [begin, end) of few elements, laid side by side for it.
void run_turned(RowLoop<SoftmaxRows> across, const SoftmaxRows& rows, std::size_t size,
                std::int64_t begin, std::int64_t end) {
  static thread_local Scratch scratch;
  const std::int64_t columns = rows.columns, room = columns * SoftmaxRows::part_rows;
  const auto bytes = [&](std::int64_t elements) {
    return static_cast<std::size_t>(elements) * size;
  };
  char* const memory = scratch.get<char>(bytes(4 * room));
  SoftmaxRows turned = rows;
  turned.out = memory;
  for (; begin < end; begin += turned.inner) {
    turned.inner = std::min(end - begin, SoftmaxRows::part_rows);
    const auto turn = [&](const void* from, int place) -> const void* {
      if (!from) return nullptr;
      char* const to = memory + bytes(place * room);
      transpose_elements(size, to, turned.inner,
                         static_cast<const char*>(from) + bytes(begin * columns), columns, columns,
                         turned.inner);
      return to;
    };
    turned.x = turn(rows.x, 1);
    turned.dy = turn(rows.dy, 2);
    turned.y = turn(rows.y, 3);
    across(turned, 0, 1);
    transpose_elements(size, static_cast<char*>(rows.out) + bytes(begin * columns), columns, memory,
                       turned.inner, turned.inner, columns);
  }
}

/// Runs the loop for rows along a dimension of arrays like `like`: `across` where neighbours in
/// memory are of different rows, else `along`. @param narrow rows of fewer elements, which leave a
/// vector's lanes idle, are turned for `across`.
void run_softmax(RowLoop<SoftmaxRows> along, RowLoop<SoftmaxRows> across, SoftmaxRows rows,
                 const ArrayView& like, int dim, std::int64_t narrow) {
  const int last = like.rank() - 1;
  for (int d = dim < 0 ? last : dim; d < last; ++d) rows.inner *= like.shape[d + 1];
  if (rows.inner == 1 || like.numel() == 0) {
    rows.columns = dim < 0 ? columns_of(like) : like.shape[dim];
    const std::int64_t count = rows.columns ? like.numel() / rows.columns : 0;
    const std::int64_t grain =
        std::max<std::int64_t>(1, parallel_grain / std::max<std::int64_t>(1, rows.columns));
    // By all rows: what a thread has of them must not change their bits.
    const bool turns = rows.columns > 0 && rows.columns < narrow && count >= 64;
    return parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
      if (turns)
        run_turned(across, rows, size_of(like.dtype), begin, end);
      else
        along(rows, begin, end);
    });
  }
  rows.columns = like.shape[dim];
  const std::int64_t parts = (rows.inner + SoftmaxRows::part_rows - 1) / SoftmaxRows::part_rows;
  const std::int64_t elements = rows.columns * std::min(rows.inner, SoftmaxRows::part_rows);
  parallel_for(like.numel() / (rows.columns * rows.inner) * parts,
               std::max<std::int64_t>(1, parallel_grain / elements),
               [&](std::int64_t begin, std::int64_t end) { across(rows, begin, end); });
}

}  // namespace

void softmax::forward(const kernels::SoftmaxArguments& a, StreamRef) {
  const auto dtype = require_rows("softmax", {&a.x, &a.y});
  const RowLoops& table = loops().rows;
  run_softmax(table.softmax[dtype], table.inner_softmax[dtype],
              {.out = a.y.data, .x = a.x.data, .log = a.log}, a.x, a.dim, 32);
}

void softmax::backward(const kernels::SoftmaxBackwardArguments& a, StreamRef) {
  const auto dtype = require_rows("softmax_backward", {&a.y, &a.dy, &a.dx});
  const RowLoops& table = loops().rows;
  run_softmax(table.softmax_backward[dtype], table.inner_softmax_backward[dtype],
              {.out = a.dx.data, .dy = a.dy.data, .y = a.y.data, .log = a.log}, a.y, a.dim,
              a.log && a.y.dtype != DType::f32 ? 32 : 8);
}

}  // namespace lockstep::cpu_kernels
