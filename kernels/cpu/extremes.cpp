#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "arguments/reduction.hpp"
#include "cpu/lines.hpp"
#include "cpu/reduce_plan.hpp"

namespace lockstep::cpu_kernels {
namespace {

/// True if a comes before b in falling order, or in rising order; NaN comes first in both.
template <bool falling = true, class T>
bool precedes(T a, T b) {
  return (falling ? a > b : a < b) | ((a != a) & (b == b));
}

/// The place of the extreme of a line, element by element.
template <bool largest, class T>
std::int64_t place_of_extreme(const T* line, std::int64_t length, std::int64_t stride) {
  std::int64_t place = 0;
  auto held = widen(line[0]);
  for (std::int64_t i = 1; i < length; ++i) {
    const auto value = widen(line[i * stride]);
    const bool better = precedes<largest>(value, held);
    held = better ? value : held;
    place = better ? i : place;
  }
  return place;
}

/// Elements from which on a line is worth the calls of `place_by_pieces`.
constexpr std::int64_t length_of_pieces = 64;

/// The same of a contiguous line, piece by piece: the extreme of a piece by vectors, and its place
/// only where it is the best so far.
template <class T>
std::int64_t place_by_pieces(const T* line, std::int64_t length, bool largest) {
  using A = AccumulateType<T>;
  using Partial = std::conditional_t<std::is_same_v<A, std::int64_t>, std::int64_t, double>;
  constexpr Accumulate type = accumulate_of(dtype_of<T>);
  const ReduceOp op = largest ? ReduceOp::amax : ReduceOp::amin;
  const auto extreme_of = loops().reduce_rows(type, op);
  alignas(64) std::array<A, tile_elements> tile;
  std::int64_t place = 0;
  A held = 0;
  for (std::int64_t at = 0; at < length; at += tile_elements) {
    const std::int64_t n = std::min(length - at, tile_elements);
    const void* piece = line + at;
    if constexpr (!std::is_same_v<A, T>) {
      loops().load[static_cast<std::size_t>(dtype_of<T>)](tile.data(), piece, 1, n);
      piece = tile.data();
    }
    Partial partial = identity<Partial>(op);
    extreme_of(&partial, piece, 0, 1, n);
    const A extreme = static_cast<A>(partial);
    const bool better = largest ? precedes<true>(extreme, held) : precedes<false>(extreme, held);
    if (at > 0 && !better) continue;
    held = extreme;
    place = at + loops().lines.first_equal[static_cast<std::size_t>(type)](piece, &held, n);
  }
  return place;
}

}  // namespace

void reduction::arg_extreme(const kernels::ArgExtremeArguments& arguments, StreamRef) {
  const ArrayView &out = arguments.out, &in = arguments.in;
  const int dim = arguments.dim;
  const bool largest = arguments.largest;
  const std::int64_t length = in.shape[dim], stride = in.strides[dim];
  LOCKSTEP_CHECK(length > 0, InvalidArgument, "arg_extreme over no elements: shape ", in.shape);
  const bool by_pieces = stride == 1 && length >= length_of_pieces;
  dispatch_numeric(in.dtype, "arg_extreme", [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_line(in.shape, dim, {&in.strides, &out.strides}, [&](const auto& offset) {
      const T* line = in.as<const T>() + offset[0];
      std::int64_t& place = out.as<std::int64_t>()[offset[1]];
      if (by_pieces)
        place = place_by_pieces(line, length, largest);
      else
        place = largest ? place_of_extreme<true>(line, length, stride)
                        : place_of_extreme<false>(line, length, stride);
    });
  });
}

void reduction::scan(const kernels::ScanArguments& arguments, StreamRef) {
  const ArrayView &out = arguments.out, &in = arguments.in;
  const int dim = arguments.dim;
  const std::int64_t length = in.shape[dim];
  const bool multiplies = arguments.op == ReduceOp::prod;
  const auto loop = dispatch_numeric(in.dtype, multiplies ? "cumprod" : "cumsum", [&](auto) {
    const LineLoops& lines = loops().lines;
    const auto dtype = static_cast<std::size_t>(in.dtype);
    return multiplies ? lines.running_products[dtype] : lines.running_sums[dtype];
  });
  // Of the lines' nest, neighbours are taken by one call.
  Shape starts = in.shape;
  starts[dim] = 1;
  const LoopNest nest = make_loop_nest(starts, {&out.strides, &in.strides});
  const std::int64_t grain =
      std::max<std::int64_t>(1, parallel_grain / std::max<std::int64_t>(1, length));
  const auto size = static_cast<std::int64_t>(lockstep::size_of(in.dtype));
  const std::int64_t direction = arguments.reverse ? -1 : 1,
                     first = arguments.reverse ? length - 1 : 0;
  parallel_for(length > 0 ? nest.total : 0, grain, [&](std::int64_t begin, std::int64_t end) {
    Cursor cursor;
    cursor.seek(nest, begin);
    for (std::int64_t at = begin; at < end;) {
      const std::int64_t lines = std::min(end - at, cursor.row_left(nest));
      loop({.out = out.as<char>() + (cursor.offset[0] + first * out.strides[dim]) * size,
            .in = in.as<const char>() + (cursor.offset[1] + first * in.strides[dim]) * size,
            .out_step = direction * out.strides[dim],
            .out_next = nest.inner_stride(0),
            .in_step = direction * in.strides[dim],
            .in_next = nest.inner_stride(1),
            .length = length,
            .lines = lines});
      cursor.advance(nest, lines);
      at += lines;
    }
  });
}

void reduction::topk(const kernels::TopkArguments& arguments, StreamRef) {
  const ArrayView &values = arguments.values, &indices = arguments.indices, &in = arguments.in;
  const std::int64_t k = arguments.k;
  const int dim = in.rank() - 1;
  LOCKSTEP_CHECK(dim >= 0 && k >= 0 && k <= in.shape[dim], InvalidArgument, "topk: k is ", k,
                 ", but the last dimension of ", in.shape, " does not have that many");
  const std::int64_t length = in.shape[dim];
  dispatch_numeric(in.dtype, "topk", [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_line(
        in.shape, dim, {&in.strides, &values.strides, &indices.strides}, [&](const auto& offset) {
          const T* line = in.as<const T>() + offset[0];
          const auto before = [&](std::int64_t a, std::int64_t b) {
            const auto x = widen(line[a * in.strides[dim]]);
            const auto y = widen(line[b * in.strides[dim]]);
            return precedes(x, y) || (!precedes(y, x) && a < b);
          };
          // A heap of the best so far, its worst on top: most elements are behind that one.
          std::vector<std::int64_t> order(static_cast<std::size_t>(k));
          std::iota(order.begin(), order.end(), 0);
          std::ranges::make_heap(order, before);
          for (std::int64_t i = k; i < length && k > 0; ++i) {
            if (!precedes(widen(line[i * in.strides[dim]]),
                          widen(line[order.front() * in.strides[dim]])))
              continue;
            std::ranges::pop_heap(order, before);
            order.back() = i;
            std::ranges::push_heap(order, before);
          }
          std::ranges::sort_heap(order, before);
          for (std::int64_t i = 0; i < k; ++i) {
            const std::int64_t at = order[static_cast<std::size_t>(i)];
            values.as<T>()[offset[1] + i * values.strides[dim]] = line[at * in.strides[dim]];
            indices.as<std::int64_t>()[offset[2] + i * indices.strides[dim]] = at;
          }
        });
  });
}

}  // namespace lockstep::cpu_kernels
