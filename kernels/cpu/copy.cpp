#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "arguments/elementwise.hpp"
#include "cpu/raw.hpp"
#include "cpu/tiles.hpp"
#include "lockstep/core/parallel.hpp"

namespace lockstep::cpu_kernels {
namespace {

/// Calls `visit(out_pointer, in_pointer, count)` for every innermost row, in parallel.
template <class Visitor>
void for_each_row(const LoopNest& nest, const ArrayView& out, const ArrayView& in, Visitor visit,
                  std::int64_t grain = parallel_grain) {
  const auto size_out = static_cast<std::int64_t>(lockstep::size_of(out.dtype));
  const auto size_in = static_cast<std::int64_t>(lockstep::size_of(in.dtype));
  parallel_for(nest.total, grain, [&](std::int64_t begin, std::int64_t end) {
    Cursor cursor;
    cursor.seek(nest, begin);
    for (std::int64_t at = begin; at < end;) {
      const std::int64_t n = std::min(end - at, cursor.row_left(nest));
      visit(out.as<char>() + cursor.offset[0] * size_out,
            in.as<char>() + cursor.offset[1] * size_in, n);
      cursor.advance(nest, n);
      at += n;
    }
  });
}

/// The dimension along which `in` is contiguous, if that is not the innermost; else -1.
int transposed_dimension(const LoopNest& nest) {
  if (nest.inner_stride(0) != 1 || std::abs(nest.inner_stride(1)) < 8) return -1;
  for (int d = 0; d + 1 < nest.rank; ++d)
    if (nest.stride[1][static_cast<std::size_t>(d)] == 1 &&
        nest.extent[static_cast<std::size_t>(d)] >= 8)
      return d;
  return -1;
}

/// Copies plane by plane: the plane is dimension `d` by the innermost one.
void copy_transposed(LoopNest nest, int d, const ArrayView& out, const ArrayView& in) {
  const auto dim = static_cast<std::size_t>(d), last = static_cast<std::size_t>(nest.rank - 1);
  const std::int64_t rows = nest.extent[dim], columns = nest.inner();
  const std::int64_t row_stride = nest.stride[0][dim], column_stride = nest.stride[1][last];
  const std::size_t size = lockstep::size_of(out.dtype);
  constexpr std::int64_t band = 64;
  const std::int64_t bands = (rows + band - 1) / band;
  nest.total /= rows * columns;
  nest.extent[dim] = nest.extent[last] = 1;
  const std::int64_t grain = std::max<std::int64_t>(1, parallel_grain / (band * columns));
  parallel_for(nest.total * bands, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end; ++at) {
      Cursor cursor;
      cursor.seek(nest, at / bands);
      const std::int64_t r0 = at % bands * band, r1 = std::min(rows, r0 + band);
      const auto width = static_cast<std::int64_t>(size);
      transpose_elements(size, out.as<char>() + (cursor.offset[0] + r0 * row_stride) * width,
                         row_stride, in.as<char>() + (cursor.offset[1] + r0) * width, column_stride,
                         r1 - r0, columns);
    }
  });
}

/// Whether rows lie together on both sides, and are so short that a call for each costs more.
bool has_short_rows(const LoopNest& nest, std::size_t size) {
  constexpr std::int64_t short_bytes = 512;
  return nest.rank > 1 && nest.inner_stride(0) == 1 && nest.inner_stride(1) == 1 &&
         nest.inner() * static_cast<std::int64_t>(size) <= short_bytes;
}

/// Copies all rows of the last dimension but one in one call.
void copy_short_rows(LoopNest nest, const ArrayView& out, const ArrayView& in) {
  const auto size = static_cast<std::int64_t>(lockstep::size_of(out.dtype));
  const std::int64_t row = nest.inner();
  nest.total /= row;
  --nest.rank;
  for_each_row(
      nest, out, in,
      [&](char* to, const char* from, std::int64_t rows) {
        copy_rows(to, nest.inner_stride(0) * size, from, nest.inner_stride(1) * size, row * size,
                  rows);
      },
      std::max<std::int64_t>(1, parallel_grain / row));
}

void copy_same_dtype(const ArrayView& out, const ArrayView& in, const LoopNest& nest) {
  if (const int d = transposed_dimension(nest); d >= 0) return copy_transposed(nest, d, out, in);
  const std::size_t size = lockstep::size_of(out.dtype);
  if (has_short_rows(nest, size)) return copy_short_rows(nest, out, in);
  if (nest.rank > 1 && nest.inner() < long_row)
    return run_tiled(nest, std::array{TileOperand::raw_output(out), TileOperand::raw_input(in)},
                     [size](void* const* p, std::int64_t n) {
                       std::memcpy(p[0], p[1], static_cast<std::size_t>(n) * size);
                     });
  for_each_row(nest, out, in, [&](char* to, const char* from, std::int64_t n) {
    copy_elements(size, to, nest.inner_stride(0), from, nest.inner_stride(1), n);
  });
}

void copy_converting(const ArrayView& out, const ArrayView& in, const LoopNest& nest) {
  const Accumulate type = accumulate_of(in.dtype);
  const LoadLoop load = loops().load[static_cast<std::size_t>(in.dtype)];
  const StoreLoop store = loops().store(type, out.dtype);
  const auto in_size = static_cast<std::int64_t>(lockstep::size_of(in.dtype));
  const auto out_size = static_cast<std::int64_t>(lockstep::size_of(out.dtype));
  const bool plain = nest.rank == 1 && nest.inner_stride(0) == 1 && nest.inner_stride(1) == 1;
  if (plain && is_accumulate_type(in.dtype))
    return for_each_row(nest, out, in,
                        [&](char* to, const char* from, std::int64_t n) { store(to, 1, from, n); });
  if (plain && is_accumulate_type(out.dtype) && accumulate_of(out.dtype) == type)
    return for_each_row(nest, out, in,
                        [&](char* to, const char* from, std::int64_t n) { load(to, from, 1, n); });
  if (nest.rank == 1 || nest.inner() >= tile_elements / 16)
    return for_each_row(nest, out, in, [&](char* to, const char* from, std::int64_t n) {
      alignas(64) std::array<double, tile_elements> tile;
      const std::int64_t in_stride = nest.inner_stride(1), out_stride = nest.inner_stride(0);
      for (std::int64_t i = 0; i < n; i += tile_elements) {
        const std::int64_t count = std::min(n - i, tile_elements);
        load(tile.data(), from + i * in_stride * in_size, in_stride, count);
        store(to + i * out_stride * out_size, out_stride, tile.data(), count);
      }
    });
  const std::array operands{TileOperand::output(out, type), TileOperand::input(in)};
  const std::size_t bytes = size_of(type);
  run_tiled(nest, operands, [bytes](void* const* p, std::int64_t n) {
    std::memcpy(p[0], p[1], static_cast<std::size_t>(n) * bytes);
  });
}

/// Zeroes elements of the last dimension, [from, to) of the row at `row`.
void zero_span(const ArrayView& out, std::int64_t row, std::int64_t from, std::int64_t to) {
  const std::size_t size = lockstep::size_of(out.dtype);
  const std::uint64_t zero = 0;
  const std::int64_t stride = out.strides.back();
  if (from < to)
    copy_elements(size, out.as<char>() + (row + from * stride) * static_cast<std::int64_t>(size),
                  stride, &zero, 0, to - from);
}

}  // namespace

void elementwise::copy(const kernels::CopyArguments& arguments, StreamRef) {
  const ArrayView &out = arguments.out, &in = arguments.in;
  const LoopNest nest = make_loop_nest(out.shape, {&out.strides, &in.strides});
  if (nest.total == 0) return;
  if (out.dtype == in.dtype)
    copy_same_dtype(out, in, nest);
  else
    copy_converting(out, in, nest);
}

void elementwise::fill(const kernels::FillArguments& arguments, StreamRef stream) {
  const ArrayView& out = arguments.out;
  std::uint64_t element = 0;
  // Integers of 2^53 and more are beyond a double, so conversion from it loses nothing.
  loops().store(Accumulate::f64, out.dtype)(&element, 1, &arguments.value, 1);
  copy({.out = out, .in = {&element, out.dtype, out.shape, Dims::filled(out.rank(), 0)}}, stream);
}

void elementwise::arange(const kernels::ArangeArguments& arguments, StreamRef) {
  const ArrayView& out = arguments.out;
  dispatch_numeric(out.dtype, "arange", [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* const to = out.as<T>();
    parallel_for(out.numel(), parallel_grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const double value = arguments.start + static_cast<double>(i) * arguments.step;
        if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Half>)
          to[i] = T(static_cast<float>(value));
        else
          to[i] = static_cast<T>(value);
      }
    });
  });
}

void elementwise::triangle(const kernels::TriangleArguments& arguments, StreamRef stream) {
  const ArrayView &out = arguments.out, &in = arguments.in;
  const bool upper = arguments.upper;
  LOCKSTEP_CHECK(out.rank() >= 2, InvalidArgument, "triangle needs two dimensions or more, got ",
                 out.shape);
  if (out.data != in.data) copy({.out = out, .in = in}, stream);
  const std::int64_t columns = out.shape.back();
  Shape rows = out.shape;
  rows.back() = 1;
  const LoopNest nest = make_loop_nest(rows, {&out.strides}, false);
  const std::int64_t height = out.shape[out.rank() - 2];
  parallel_for(nest.total, std::max<std::int64_t>(1, parallel_grain / (columns + 1)),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t at = begin; at < end; ++at) {
                   Cursor cursor;
                   cursor.seek(nest, at);
                   const std::int64_t edge = at % height + arguments.diagonal;
                   const std::int64_t split =
                       std::clamp<std::int64_t>(upper ? edge : edge + 1, 0, columns);
                   zero_span(out, cursor.offset[0], upper ? 0 : split, upper ? split : columns);
                 }
               });
}

}  // namespace lockstep::cpu_kernels
