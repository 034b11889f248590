#pragma once

#include "cuda/group.hpp"

/// @file
/// Sums down the columns of a [rows, columns] problem, in two stages and a fixed order: blocks of
/// rows first, then their partial sums.

namespace lockstep::cuda_kernels {

inline constexpr int column_width = 32;  // columns of a block, a thread each
inline constexpr int column_height = 8;  // threads down each column
inline constexpr int rows_per_thread = 32;
inline constexpr int final_height = 32;  // where one block has all rows of its columns

/// Into how many blocks the rows fall.
inline std::int64_t row_blocks(std::int64_t rows) {
  constexpr std::int64_t per_block = column_height * rows_per_thread;
  const std::int64_t blocks = (rows + per_block - 1) / per_block;
  return blocks < 1 ? 1 : blocks < 512 ? blocks : 512;
}

/// Bytes of scratch memory for the partial sums.
template <class Value>
std::size_t column_scratch(std::int64_t rows, std::int64_t columns) {
  return sizeof(Value) * static_cast<std::size_t>(row_blocks(rows) * columns);
}

template <int height, class Value, class Term, class Store>
__global__ void __launch_bounds__(column_width* height)
    reduce_columns_kernel(std::int64_t rows, std::int64_t columns, Term term, Store store) {
  alignas(16) __shared__ unsigned char storage[column_width * height * sizeof(Value)];
  Value* const partial = reinterpret_cast<Value*>(storage);
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * column_width + threadIdx.x;
  const std::int64_t share = (rows + gridDim.y - 1) / gridDim.y;
  const std::int64_t first = blockIdx.y * share;
  const std::int64_t last = first + share < rows ? first + share : rows;
  Value sum{};
  if (column < columns)
    for (std::int64_t row = first + threadIdx.y; row < last; row += height)
      sum = sum + term(row, column);
  partial[threadIdx.y * column_width + threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  for (int y = 1; y < height; ++y) sum = sum + partial[y * column_width + threadIdx.x];
  store(blockIdx.y, column, sum);
}

/// Stage one keeps its sums.
template <class Value>
struct StorePartial {
  Value* partial;
  std::int64_t columns;
  __device__ void operator()(unsigned block, std::int64_t column, const Value& sum) const {
    partial[block * columns + column] = sum;
  }
};

template <class Value>
struct LoadPartial {
  const Value* partial;
  std::int64_t columns;
  __device__ Value operator()(std::int64_t row, std::int64_t column) const {
    return partial[row * columns + column];
  }
};

/// Stage two hands them to the caller.
template <class Value, class Store>
struct StoreFinal {
  Store store;
  __device__ void operator()(unsigned, std::int64_t column, const Value& sum) const {
    store(column, sum);
  }
};

/// Calls `store(column, sum over rows of term(row, column))` for every column, for some hundreds of
/// rows.
template <class Value, class Term, class Store>
void sum_columns(StreamRef stream, std::int64_t rows, std::int64_t columns, const Term& term,
                 const Store& store) {
  if (columns == 0) return;
  using Final = StoreFinal<Value, Store>;
  const auto across = static_cast<unsigned>((columns + column_width - 1) / column_width);
  launch(stream, dim3(across), dim3(column_width, final_height), 0,
         reduce_columns_kernel<final_height, Value, Term, Final>, rows, columns, term,
         Final{store});
}

/// The same for any number of rows.
template <class Value, class Term, class Store>
void reduce_columns(StreamRef stream, std::int64_t rows, std::int64_t columns, Value* scratch,
                    const Term& term, const Store& store) {
  if (columns == 0) return;
  const auto blocks = static_cast<unsigned>(row_blocks(rows));
  const auto across = static_cast<unsigned>((columns + column_width - 1) / column_width);
  if (blocks == 1) return sum_columns<Value>(stream, rows, columns, term, store);
  using Partial = StorePartial<Value>;
  launch(stream, dim3(across, blocks), dim3(column_width, column_height), 0,
         reduce_columns_kernel<column_height, Value, Term, Partial>, rows, columns, term,
         Partial{scratch, columns});
  sum_columns<Value>(stream, blocks, columns, LoadPartial<Value>{scratch, columns}, store);
}

}  // namespace lockstep::cuda_kernels
