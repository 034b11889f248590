#include "cpu/index.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "cpu/nest.hpp"
#include "cpu/tiles.hpp"
#include "lockstep/core/parallel.hpp"

namespace lockstep::host {
namespace {

/// A value of T in its accumulation type.
template <class T>
AccumulateType<T> widen(T value) {
  return static_cast<AccumulateType<T>>(value);
}

/// Calls `visit(offsets)` for every line along `dim` of operands that agree in all other extents
/// of `shape`, in parallel; `offsets` are those of each operand's first element of the line.
template <class Visitor>
void for_each_line(Shape shape, int dim, std::initializer_list<const Strides*> strides,
                   Visitor visit) {
  const std::int64_t length = std::max<std::int64_t>(1, shape[dim]);
  shape[dim] = 1;
  const Nest nest = make_nest(shape, strides, false);
  const std::int64_t grain = std::max<std::int64_t>(1, parallel_grain / length);
  parallel_for(nest.total, grain, [&](std::int64_t begin, std::int64_t end) {
    Cursor cursor;
    cursor.seek(nest, begin);
    for (std::int64_t i = begin; i < end; ++i) {
      visit(cursor.offset);
      cursor.advance(nest, 1);
    }
  });
}

/// True if a comes before b in falling order; NaN counts as the largest.
template <class T>
bool precedes(T a, T b) {
  return a > b || (a != a && b == b);
}

std::int64_t checked(std::int64_t index, std::int64_t extent, std::string_view op) {
  LOCKSTEP_CHECK(index >= 0 && index < extent, InvalidArgument, op, ": index ", index,
                 " is outside [0, ", extent, ")");
  return index;
}

}  // namespace

void arg_extreme(const ArrayView& out, const ArrayView& in, int dim, bool largest) {
  const std::int64_t length = in.shape[dim], stride = in.strides[dim];
  LOCKSTEP_CHECK(length > 0, InvalidArgument, "arg_extreme over no elements: shape ", in.shape);
  dispatch_numeric(in.dtype, "arg_extreme", [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_line(in.shape, dim, {&in.strides, &out.strides}, [&](const auto& offset) {
      const T* line = in.as<const T>() + offset[0];
      std::int64_t best = 0;
      for (std::int64_t i = 1; i < length; ++i) {
        const auto value = widen(line[i * stride]), held = widen(line[best * stride]);
        if (largest ? precedes(value, held) : (value < held || (value != value && held == held)))
          best = i;
      }
      out.as<std::int64_t>()[offset[1]] = best;
    });
  });
}

void cumsum(const ArrayView& out, const ArrayView& in, int dim, bool reverse) {
  const std::int64_t length = in.shape[dim];
  dispatch_numeric(in.dtype, "cumsum", [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_line(in.shape, dim, {&in.strides, &out.strides}, [&](const auto& offset) {
      // Sums of floats run in double: a long line stays accurate.
      std::conditional_t<is_floating_type<T>, double, std::int64_t> total = 0;
      for (std::int64_t i = 0; i < length; ++i) {
        const std::int64_t at = reverse ? length - 1 - i : i;
        total += widen(in.as<const T>()[offset[0] + at * in.strides[dim]]);
        T& to = out.as<T>()[offset[1] + at * out.strides[dim]];
        if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Half>)
          to = T(static_cast<float>(total));
        else
          to = static_cast<T>(total);
      }
    });
  });
}

void topk(const ArrayView& values, const ArrayView& indices, const ArrayView& in, std::int64_t k) {
  const int dim = in.rank() - 1;
  LOCKSTEP_CHECK(dim >= 0 && k >= 0 && k <= in.shape[dim], InvalidArgument, "topk: k is ", k,
                 ", but the last dimension of ", in.shape, " does not have that many");
  const std::int64_t length = in.shape[dim];
  dispatch_numeric(in.dtype, "topk", [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_line(
        in.shape, dim, {&in.strides, &values.strides, &indices.strides}, [&](const auto& offset) {
          const T* line = in.as<const T>() + offset[0];
          std::vector<std::int64_t> order(static_cast<std::size_t>(length));
          std::iota(order.begin(), order.end(), 0);
          const auto before = [&](std::int64_t a, std::int64_t b) {
            const auto x = widen(line[a * in.strides[dim]]);
            const auto y = widen(line[b * in.strides[dim]]);
            return precedes(x, y) || (!precedes(y, x) && a < b);
          };
          std::partial_sort(order.begin(), order.begin() + k, order.end(), before);
          for (std::int64_t i = 0; i < k; ++i) {
            const std::int64_t at = order[static_cast<std::size_t>(i)];
            values.as<T>()[offset[1] + i * values.strides[dim]] = line[at * in.strides[dim]];
            indices.as<std::int64_t>()[offset[2] + i * indices.strides[dim]] = at;
          }
        });
  });
}

void gather(const ArrayView& out, const ArrayView& in, const ArrayView& index, int dim) {
  const std::int64_t extent = in.shape[dim], length = out.shape[dim];
  const auto size = lockstep::size_of(out.dtype);
  const auto step = static_cast<std::int64_t>(size);
  for_each_line(
      out.shape, dim, {&out.strides, &in.strides, &index.strides}, [&](const auto& offset) {
        for (std::int64_t i = 0; i < length; ++i) {
          const std::int64_t at = checked(
              index.as<std::int64_t>()[offset[2] + i * index.strides[dim]], extent, "gather");
          std::memcpy(out.as<char>() + (offset[0] + i * out.strides[dim]) * step,
                      in.as<char>() + (offset[1] + at * in.strides[dim]) * step, size);
        }
      });
}

void scatter_add(const ArrayView& out, const ArrayView& in, const ArrayView& index, int dim) {
  const std::int64_t extent = out.shape[dim], length = in.shape[dim];
  dispatch_numeric(out.dtype, "scatter_add", [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_line(in.shape, dim, {&out.strides, &in.strides, &index.strides},
                  [&](const auto& offset) {
                    for (std::int64_t i = 0; i < length; ++i) {
                      const std::int64_t at =
                          checked(index.as<std::int64_t>()[offset[2] + i * index.strides[dim]],
                                  extent, "scatter_add");
                      T& to = out.as<T>()[offset[0] + at * out.strides[dim]];
                      to = static_cast<T>(widen(to) +
                                          widen(in.as<const T>()[offset[1] + i * in.strides[dim]]));
                    }
                  });
  });
}

}  // namespace lockstep::host
