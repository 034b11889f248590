#pragma once

#include <cstdint>
#include <cstring>

#include "cpu/loops.hpp"
#include "functional/namespace.hpp"

/// @file
/// Bringing rows of elements together, for loops of the type LoadRowsLoop.

namespace lockstep::cpu_kernels::LOCKSTEP_ISA {

/// Writes rows one behind the other.
/// @param copy called with (to, to_stride, from, from_stride, n), brings n elements
template <class To, class From, class Copy>
LOCKSTEP_ALWAYS_INLINE void copy_each_row(To* to, const SourceRows& source, const Copy& copy) {
  const From* const from = static_cast<const From*>(source.from);
  const std::int64_t rows = source.rows, columns = source.columns;
  if (source.row_stride == 0) {  // one row, again and again
    copy(to, 1, from, source.stride, columns);
    for (std::int64_t done = 1; done < rows; done *= 2) {
      const std::int64_t more = done < rows - done ? done : rows - done;
      std::memcpy(to + done * columns, to, static_cast<std::size_t>(more * columns) * sizeof(To));
    }
    return;
  }
  constexpr std::int64_t short_row = 16;
  if (columns < short_row && columns < rows) {  // column by column: one loop for all rows
    for (std::int64_t c = 0; c < columns; ++c)
      copy(to + c, columns, from + c * source.stride, source.row_stride, rows);
    return;
  }
  for (std::int64_t r = 0; r < rows; ++r)
    copy(to + r * columns, 1, from + r * source.row_stride, source.stride, columns);
}

}  // namespace lockstep::cpu_kernels::LOCKSTEP_ISA
