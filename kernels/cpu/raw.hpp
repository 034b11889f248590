#pragma once

#include <cstddef>

#include "cpu/loops.hpp"

/// @file
/// Moving elements by their size alone.

namespace lockstep::cpu_kernels {

/// Copies n elements of `size` bytes (1, 2, 4 or 8) between strides given in elements.
void copy_elements(std::size_t size, void* to, std::int64_t to_stride, const void* from,
                   std::int64_t from_stride, std::int64_t n);

/// Copies `count` rows, each of so many bytes that lie together; strides are in bytes.
void copy_rows(char* to, std::int64_t to_stride, const char* from, std::int64_t from_stride,
               std::int64_t row_bytes, std::int64_t count);

/// Copies a [rows, columns] block whose rows are contiguous in `to` and whose columns are
/// contiguous in `from`; the other strides are in elements.
void transpose_elements(std::size_t size, void* to, std::int64_t to_row_stride, const void* from,
                        std::int64_t from_column_stride, std::int64_t rows, std::int64_t columns);

/// The loops of a raw operand: a tile holds the elements as they are.
LoadRowsLoop raw_load_rows(std::size_t size);
StoreLoop raw_store(std::size_t size);

}  // namespace lockstep::cpu_kernels
