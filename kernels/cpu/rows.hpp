#pragma once

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "cpu/loops.hpp"
#include "cpu/tiles.hpp"
#include "lockstep/core/array_view.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/parallel.hpp"

/// @file
/// What kernels over rows (the last dimension) of contiguous arrays share.

namespace lockstep::cpu_kernels {

inline std::int64_t columns_of(const ArrayView& view) {
  return view.rank() ? view.shape.back() : 1;
}

/// How many rows there are, also of no columns.
inline std::int64_t rows_of(const ArrayView& view) {
  std::int64_t rows = 1;
  for (int d = 0; d + 1 < view.rank(); ++d) rows *= view.shape[d];
  return rows;
}

/// The index of a dtype in tables of row loops. @throws Unsupported unless it is floating.
inline std::size_t floating_index(std::string_view op, DType dtype) {
  LOCKSTEP_CHECK(is_floating(dtype), Unsupported, op, ": dtype ", dtype,
                 " is not offered on device cpu");
  return static_cast<std::size_t>(dtype);
}

/// The index of the arrays' dtype in tables of row loops. @throws Unsupported unless it is
/// floating, InvalidArgument unless all arrays share it and are contiguous.
inline std::size_t require_rows(std::string_view op,
                                std::initializer_list<const ArrayView*> arrays) {
  const DType dtype = (*arrays.begin())->dtype;
  const std::size_t index = floating_index(op, dtype);
  for (const ArrayView* array : arrays) {
    LOCKSTEP_CHECK(array->dtype == dtype, InvalidArgument, op, ": dtypes ", dtype, " and ",
                   array->dtype, " differ");
    LOCKSTEP_CHECK(contiguous_count(*array) >= 0, InvalidArgument, op,
                   ": needs contiguous arrays, got strides ", array->strides, " for shape ",
                   array->shape);
  }
  return index;
}

/// Runs the loop over all rows of `like`, on all threads.
template <class Rows>
void run_rows(RowLoop<Rows> loop, const Rows& rows, const ArrayView& like) {
  const std::int64_t grain =
      std::max<std::int64_t>(1, parallel_grain / std::max<std::int64_t>(1, columns_of(like)));
  parallel_for(rows_of(like), grain,
               [&](std::int64_t begin, std::int64_t end) { loop(rows, begin, end); });
}

}  // namespace lockstep::cpu_kernels
