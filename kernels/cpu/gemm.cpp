#include "arguments/gemm.hpp"

#include <algorithm>

#include "arguments/bias_gradient.hpp"
#include "cpu/few_rows.hpp"
#include "cpu/gemm_kernels.hpp"
#include "cpu/gemm_pack.hpp"
#include "cpu/loops.hpp"
#include "cpu/scratch.hpp"
#include "cpu/small_gemm.hpp"
#include "cpu/typed_row.hpp"
#include "lockstep/core/parallel.hpp"

namespace lockstep::cpu_kernels {
namespace {

using kernels::Epilogue;
using kernels::GemmArguments;

constexpr std::int64_t depth_block = 256;      // fixed: the order of additions depends on it alone
constexpr std::int64_t parallel_work = 65536;  // multiply-adds that are worth a second thread

/// A block of the output that one thread computes.
struct Tile {
  std::int64_t batch, row, column, rows, columns;
};

/// How the output is cut into tiles.
struct Tiling {
  std::int64_t rows, columns, row_tiles, column_tiles, batch, tile_rows, tile_columns;

  Tiling(const ArrayView& out, std::int64_t kernel_rows, std::int64_t kernel_columns)
      : rows(out.shape[1]),
        columns(out.shape[2]),
        batch(out.shape[0]),
        tile_rows(kernel_rows * 12),
        tile_columns(kernel_columns * 8) {
    // Fewer tiles than threads leave some idle; halve the longer side while that helps.
    while (count() < 2 * num_threads() && tile_rows > kernel_rows && tile_columns > kernel_columns)
      (tile_rows > tile_columns ? tile_rows : tile_columns) /= 2;
    tile_rows = (tile_rows + kernel_rows - 1) / kernel_rows * kernel_rows;
    tile_columns = (tile_columns + kernel_columns - 1) / kernel_columns * kernel_columns;
    count();
  }
  std::int64_t count() {
    row_tiles = (rows + tile_rows - 1) / tile_rows;
    column_tiles = (columns + tile_columns - 1) / tile_columns;
    return batch * row_tiles * column_tiles;
  }
  Tile tile(std::int64_t index) const {
    const std::int64_t in_batch = index % (row_tiles * column_tiles);
    const std::int64_t row = in_batch / column_tiles * tile_rows;
    const std::int64_t column = in_batch % column_tiles * tile_columns;
    return {index / (row_tiles * column_tiles), row, column, std::min(tile_rows, rows - row),
            std::min(tile_columns, columns - column)};
  }
};

/// A call turned so that rows of the output are contiguous where possible.
struct Product {
  GemmArguments call;
  bool bias_per_row = false;  ///< the call was turned, and its columns with it
};

/// Applies the epilogue to one row of sums and stores it.
template <class Sum>
void finish_row(const Product& product, const Tile& tile, std::int64_t row, Sum* sums,
                const Sum* bias, Sum* spare) {
  const GemmArguments& call = product.call;
  const std::int64_t count = tile.columns;
  const auto at = [&](const ArrayView& view) {
    const auto& strides = view.strides;
    return tile.batch * strides[0] + row * strides[1] + tile.column * strides[2];
  };
  const std::int64_t aux_at =
      (tile.batch * call.out.shape[1] + row) * call.out.shape[2] + tile.column;
  if (bias && product.bias_per_row)
    for (std::int64_t j = 0; j < count; ++j) sums[j] += bias[row - tile.row];
  else if (bias)
    for (std::int64_t j = 0; j < count; ++j) sums[j] += bias[j];
  if (call.epilogue == Epilogue::gelu_bias) {
    if (call.aux) store_row(call.aux, aux_at, 1, sums, count);
    const auto gelu = loops().unary(accumulate_of(dtype_of<Sum>), UnaryOp::gelu_tanh);
    gelu(sums, sums, count, {});
  }
  if (call.epilogue == Epilogue::dgelu) {
    load_row(spare, call.aux, aux_at, 1, count);
    const auto slope = loops().unary_backward(accumulate_of(dtype_of<Sum>), UnaryOp::gelu_tanh);
    slope(sums, sums, spare, count, {});
  }
  if (call.beta != 0) {
    const ArrayView& before = call.addend ? call.addend : call.out;
    load_row(spare, before, at(before), before.strides[2], count);
    for (std::int64_t j = 0; j < count; ++j) sums[j] += static_cast<Sum>(call.beta) * spare[j];
  }
  store_row(call.out, at(call.out), call.out.strides[2], sums, count);
}

/// The working memory of one tile.
template <class Sum>
struct TileMemory {
  Sum *a, *b, *sums, *bias, *spare;
  std::int64_t stride;  // of a row of sums

  TileMemory(const GemmKernel<Sum>& kernel, const Tile& tile, std::int64_t depth) {
    const auto rounded = [](std::int64_t value, std::int64_t unit) {
      return (value + unit - 1) / unit * unit;
    };
    const std::int64_t rows = rounded(tile.rows, kernel.rows);
    stride = rounded(tile.columns, kernel.columns);
    const std::int64_t block = std::min(depth, depth_block);
    static thread_local Scratch scratch;
    a = scratch.get<Sum>(static_cast<std::size_t>(rounded(rows * block, 16) + stride * block +
                                                  rows * stride + rows + 2 * stride));
    b = a + rounded(rows * block, 16);
    sums = b + stride * block;
    bias = sums + rows * stride;
    spare = bias + std::max(rows, stride);
    std::fill(sums, sums + rows * stride, Sum(0));
  }
};

/// Multiplies one packed block of the depth into the sums.
template <class Sum>
void multiply(const GemmKernel<Sum>& kernel, const TileMemory<Sum>& memory, const Tile& tile,
              std::int64_t depth) {
  for (std::int64_t j = 0; j < tile.columns; j += kernel.columns)
    for (std::int64_t i = 0; i < tile.rows; i += kernel.rows)
      kernel.run(depth, memory.a + i * depth, memory.b + j * depth,
                 memory.sums + i * memory.stride + j, memory.stride);
}

/// The sums of one tile, before the epilogue.
template <class T, class Sum>
void sum_products(const GemmArguments& call, const Tile& tile, const TileMemory<Sum>& memory) {
  const auto& kernel = gemm_kernel<Sum>();
  const std::int64_t depth = call.a.shape[2];
  const auto &sa = call.a.strides, &sb = call.b.strides;
  const T* a = call.a.as<const T>() + tile.batch * sa[0] + tile.row * sa[1];
  const T* b = call.b.as<const T>() + tile.batch * sb[0] + tile.column * sb[2];
  for (std::int64_t p = 0; p < depth; p += depth_block) {
    const std::int64_t block = std::min(depth_block, depth - p);
    pack_panels<T, Sum>(memory.a, {a + p * sa[2], sa[1], sa[2]}, tile.rows, block, kernel.rows);
    pack_panels<T, Sum>(memory.b, {b + p * sb[1], sb[2], sb[1]}, tile.columns, block,
                        kernel.columns);
    multiply(kernel, memory, tile, block);
  }
}

template <class T, class Sum>
void run_tile(const Product& product, const Tile& tile) {
  const GemmArguments& call = product.call;
  const TileMemory<Sum> memory(gemm_kernel<Sum>(), tile, call.a.shape[2]);
  sum_products<T, Sum>(call, tile, memory);
  const bool add_bias = call.epilogue == Epilogue::bias || call.epilogue == Epilogue::gelu_bias;
  if (add_bias) {
    const std::int64_t first = product.bias_per_row ? tile.row : tile.column;
    load_row(memory.bias, call.bias, first * call.bias.strides[0], call.bias.strides[0],
             product.bias_per_row ? tile.rows : tile.columns);
  }
  for (std::int64_t i = 0; i < tile.rows; ++i)
    finish_row(product, tile, tile.row + i, memory.sums + i * memory.stride,
               add_bias ? memory.bias : nullptr, memory.spare);
}

template <class T>
void run(const Product& product) {
  using Sum = AccumulateType<T>;
  const auto& kernel = gemm_kernel<Sum>();
  const Tiling tiling(product.call.out, kernel.rows, kernel.columns);
  const std::int64_t work = tiling.tile_rows * tiling.tile_columns * product.call.a.shape[2];
  const std::int64_t grain = parallel_work / std::max<std::int64_t>(work, 1) + 1;
  parallel_for(tiling.batch * tiling.row_tiles * tiling.column_tiles, grain,
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i)
                   run_tile<T, Sum>(product, tiling.tile(i));
               });
}

ArrayView transposed(const ArrayView& view) {
  ArrayView result = view;
  std::swap(result.shape[1], result.shape[2]);
  std::swap(result.strides[1], result.strides[2]);
  return result;
}

void check(const GemmArguments& call) {
  const auto &out = call.out, &a = call.a, &b = call.b;
  LOCKSTEP_CHECK(out.rank() == 3 && a.rank() == 3 && b.rank() == 3, InvalidArgument,
                 "gemm: operands must be [batch, rows, columns], got ranks ", out.rank(), ", ",
                 a.rank(), ", ", b.rank());
  const bool fit = a.shape[2] == b.shape[1] && out.shape[1] == a.shape[1] &&
                   out.shape[2] == b.shape[2] && out.shape[0] == a.shape[0] &&
                   out.shape[0] == b.shape[0];
  LOCKSTEP_CHECK(fit, InvalidArgument, "gemm: ", a.shape, " @ ", b.shape, " does not give ",
                 out.shape);
  LOCKSTEP_CHECK(a.dtype == b.dtype, InvalidArgument, "gemm: operands differ in dtype: ", a.dtype,
                 " and ", b.dtype);
}

/// Turns a column-major output into a row-major one, where the epilogue allows.
Product oriented(const GemmArguments& call) {
  const bool column_major = call.out.strides[2] != 1 && call.out.strides[1] == 1;
  if (!column_major || call.epilogue == Epilogue::gelu_bias || call.epilogue == Epilogue::dgelu)
    return {call};
  Product product{call, call.epilogue == Epilogue::bias};
  product.call.out = transposed(call.out);
  if (call.addend) product.call.addend = transposed(call.addend);
  product.call.a = transposed(call.b);
  product.call.b = transposed(call.a);
  return product;
}

/// Every strided layout and floating dtype. Each element's sum runs over the depth in a fixed
/// order, so results do not depend on the number of threads.
}  // namespace

void gemm::multiply(const GemmArguments& call, StreamRef stream) {
  check(call);
  if (call.epilogue == Epilogue::bias_gradient) {
    reduction::reduce(bias_gradient(call), stream);
    return multiply(without_epilogue(call), stream);
  }
  if (call.out.numel() == 0) return;
  const Product product = oriented(call);
  if (!product.bias_per_row && (multiply_small(product.call) || multiply_few_rows(product.call)))
    return;
  dispatch_floating(call.a.dtype, "gemm",
                    [&](auto tag) { run<typename decltype(tag)::type>(product); });
}

}  // namespace lockstep::cpu_kernels
