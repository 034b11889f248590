#include "arguments/softmax.hpp"

#include <algorithm>

#include "cpu/rows.hpp"

namespace lockstep::cpu_kernels {
namespace {

/// Runs the loop for rows along a dimension of arrays like `like`: `across` where neighbours in
/// memory are of different rows, else `along`.
void run_softmax(RowLoop<SoftmaxRows> along, RowLoop<SoftmaxRows> across, SoftmaxRows rows,
                 const ArrayView& like, int dim) {
  const int last = like.rank() - 1;
  for (int d = dim < 0 ? last : dim; d < last; ++d) rows.inner *= like.shape[d + 1];
  if (rows.inner == 1 || like.numel() == 0) {
    rows.columns = dim < 0 ? columns_of(like) : like.shape[dim];
    const std::int64_t count = rows.columns ? like.numel() / rows.columns : 0;
    const std::int64_t grain =
        std::max<std::int64_t>(1, parallel_grain / std::max<std::int64_t>(1, rows.columns));
    return parallel_for(count, grain,
                        [&](std::int64_t begin, std::int64_t end) { along(rows, begin, end); });
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
              {.out = a.y.data, .x = a.x.data, .log = a.log}, a.x, a.dim);
}

void softmax::backward(const kernels::SoftmaxBackwardArguments& a, StreamRef) {
  const auto dtype = require_rows("softmax_backward", {&a.y, &a.dy, &a.dx});
  const RowLoops& table = loops().rows;
  run_softmax(table.softmax_backward[dtype], table.inner_softmax_backward[dtype],
              {.out = a.dx.data, .dy = a.dy.data, .y = a.y.data, .log = a.log}, a.y, a.dim);
}

}  // namespace lockstep::cpu_kernels
