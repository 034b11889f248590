#pragma once

#include <algorithm>
#include <cstdint>

#include "lockstep/core/array_view.hpp"

namespace lockstep::cuda_kernels {

/// How cuBLASLt, which thinks in columns, sees one [batch, rows, columns] operand.
struct LtMatrix {
  std::int64_t rows = 0;  ///< of the column-major matrix in memory
  std::int64_t columns = 0;
  std::int64_t leading = 0;  ///< distance of columns, at least `rows`
  std::int64_t batch_stride = 0;
  bool row_major = false;  ///< the view's rows are the memory's columns

  friend bool operator==(const LtMatrix&, const LtMatrix&) = default;
};

/// Whether `lt_matrix` takes a matrix of such strides: expanded ones, and those whose elements all
/// lie apart, it does not.
inline bool is_lt_matrix(std::int64_t rows, std::int64_t columns, std::int64_t row_stride,
                         std::int64_t column_stride) {
  // The stride of an extent of 1 means nothing: the leading extent is as good.
  return ((columns == 1 || column_stride == 1) && (rows == 1 || row_stride >= columns)) ||
         ((rows == 1 || row_stride == 1) && (columns == 1 || column_stride >= rows));
}

/// Reads the layout off a view. @throws InvalidArgument if neither of the last strides is 1.
inline LtMatrix lt_matrix(const ArrayView& view) {
  const std::int64_t rows = view.shape[1];
  const std::int64_t columns = view.shape[2];
  const std::int64_t row_stride = view.strides[1];
  const std::int64_t column_stride = view.strides[2];
  const std::int64_t batch_stride = view.shape[0] > 1 ? view.strides[0] : 0;
  LOCKSTEP_CHECK(is_lt_matrix(rows, columns, row_stride, column_stride), InvalidArgument,
                 "gemm: an operand of shape ", view.shape, " has strides ", view.strides,
                 "; one of the last two must be 1 and the other must not overlap");
  const std::int64_t row_pitch = rows > 1 ? row_stride : columns;
  const std::int64_t column_pitch = columns > 1 ? column_stride : rows;
  if ((columns == 1 || column_stride == 1) && row_pitch >= columns)
    return {columns, rows, row_pitch, batch_stride, true};
  return {rows, columns, column_pitch, batch_stride, false};
}

}  // namespace lockstep::cuda_kernels
