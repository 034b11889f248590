#include "cpu/pixel_pooling.hpp"

#include <algorithm>
#include <vector>

#include "cpu/loops.hpp"
#include "cpu/tiles.hpp"
#include "lockstep/core/parallel.hpp"

namespace lockstep::cpu_kernels {
namespace {

using functional::PoolRange;

/// True if neighbours in memory are neighbouring channels, in all arrays.
bool suits(const ArrayView& image, std::initializer_list<const ArrayView*> others) {
  const auto by_channel = [](const ArrayView& view) {
    return view.strides[1] == 1 && view.shape[1] > 1;
  };
  return is_floating(image.dtype) && by_channel(image) &&
         std::ranges::all_of(others, [&](const ArrayView* view) { return by_channel(*view); });
}

const PoolLoops& loops_of(DType dtype) { return loops().pool[static_cast<std::size_t>(dtype)]; }

/// Offset of a position's first channel, in elements.
std::int64_t offset(const ArrayView& view, std::int64_t n, std::int64_t h, std::int64_t w) {
  return n * view.strides[0] + h * view.strides[2] + w * view.strides[3];
}
char* at(const ArrayView& view, std::int64_t offset) {
  return view.as<char>() + offset * static_cast<std::int64_t>(size_of(view.dtype));
}

/// Calls `visit(cell, n, i, j)` for all positions of `out`, in parallel; the cell has operands and
/// strides, and the range of each axis that `range(axis, position)` gives.
template <class Range, class Visit>
void for_each_cell(const ArrayView& out, const ArrayView& in, const PoolWindows& windows,
                   Range&& range, Visit&& visit) {
  const std::int64_t height = out.shape[2], width = out.shape[3];
  const std::int64_t grain =
      std::max<std::int64_t>(1, parallel_grain / std::max<std::int64_t>(1, width * out.shape[1]));
  std::vector<PoolRange> columns;
  for (std::int64_t j = 0; j < width; ++j) columns.push_back(range(windows.axis[1], j));
  parallel_for(out.shape[0] * height, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t n = row / height, i = row % height;
      const PoolRange rows = range(windows.axis[0], i);
      PoolCell cell{.in = at(in, offset(in, n, 0, 0)),
                    .row_stride = in.strides[2],
                    .column_stride = in.strides[3],
                    .row_begin = rows.begin,
                    .row_end = rows.end,
                    .width = windows.axis[1].in,
                    .channels = out.shape[1]};
      for (std::int64_t j = 0; j < width; ++j) {
        cell.out = at(out, offset(out, n, i, j));
        cell.column_begin = columns[static_cast<std::size_t>(j)].begin;
        cell.column_end = columns[static_cast<std::size_t>(j)].end;
        visit(cell, n, i, j);
      }
    }
  });
}

/// What the windows along each axis bring to the divisor of a mean.
std::vector<std::int64_t> extents(const PoolWindows& windows, std::size_t axis) {
  std::vector<std::int64_t> result;
  for (std::int64_t i = 0; i < windows.axis[axis].out; ++i)
    result.push_back(functional::pool_extent(windows.axis[axis], i, windows.count_padding));
  return result;
}

}  // namespace

bool max_pixels(const kernels::MaxPoolArguments& a) {
  if (!suits(a.x, {&a.y, &a.index})) return false;
  const auto loop = loops_of(a.x.dtype).max;
  for_each_cell(a.y, a.x, windows_of(a.geometry, a.y, a.x), functional::pool_window,
                [&](PoolCell& cell, std::int64_t n, std::int64_t i, std::int64_t j) {
                  cell.index = a.index.as<std::int32_t>() + offset(a.index, n, i, j);
                  loop(cell);
                });
  return true;
}

bool max_pixels_backward(const kernels::MaxPoolBackwardArguments& a) {
  if (!suits(a.dx, {&a.dy, &a.index})) return false;
  const auto loop = loops_of(a.dx.dtype).max_backward;
  for_each_cell(a.dx, a.dy, windows_of(a.geometry, a.dy, a.dx), functional::pool_windows_over,
                [&](PoolCell& cell, std::int64_t n, std::int64_t h, std::int64_t w) {
                  cell.in_index = a.index.as<const std::int32_t>() + offset(a.index, n, 0, 0);
                  cell.index_row_stride = a.index.strides[2];
                  cell.index_column_stride = a.index.strides[3];
                  cell.position = h * cell.width + w;
                  loop(cell);
                });
  return true;
}

bool average_pixels(const kernels::AveragePoolArguments& a) {
  if (!suits(a.x, {&a.y})) return false;
  const auto windows = windows_of(a.geometry, a.y, a.x);
  const auto rows = extents(windows, 0), columns = extents(windows, 1);
  const auto loop = loops_of(a.x.dtype).mean;
  for_each_cell(a.y, a.x, windows, functional::pool_window,
                [&](PoolCell& cell, std::int64_t, std::int64_t i, std::int64_t j) {
                  cell.row_extent = rows.data() + i;
                  cell.column_extent = columns.data() + j;
                  loop(cell);
                });
  return true;
}

bool average_pixels_backward(const kernels::AveragePoolBackwardArguments& a) {
  if (!suits(a.dx, {&a.dy})) return false;
  const auto windows = windows_of(a.geometry, a.dy, a.dx);
  const auto rows = extents(windows, 0), columns = extents(windows, 1);
  const auto loop = loops_of(a.dx.dtype).mean_backward;
  for_each_cell(a.dx, a.dy, windows, functional::pool_windows_over,
                [&](PoolCell& cell, std::int64_t, std::int64_t, std::int64_t) {
                  cell.row_extent = rows.data();
                  cell.column_extent = columns.data();
                  loop(cell);
                });
  return true;
}

}  // namespace lockstep::cpu_kernels
