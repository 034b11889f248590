#include <algorithm>
#include <numeric>
#include <vector>

#include "arguments/reduction.hpp"
#include "cpu/lines.hpp"

namespace lockstep::cpu_kernels {
namespace {

/// True if a comes before b in falling order; NaN counts as the largest.
template <class T>
bool precedes(T a, T b) {
  return a > b || (a != a && b == b);
}

}  // namespace

void reduction::arg_extreme(const kernels::ArgExtremeArguments& arguments, StreamRef) {
  const ArrayView &out = arguments.out, &in = arguments.in;
  const int dim = arguments.dim;
  const bool largest = arguments.largest;
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

void reduction::cumsum(const kernels::CumsumArguments& arguments, StreamRef) {
  const ArrayView &out = arguments.out, &in = arguments.in;
  const int dim = arguments.dim;
  const std::int64_t length = in.shape[dim];
  dispatch_numeric(in.dtype, "cumsum", [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_line(in.shape, dim, {&in.strides, &out.strides}, [&](const auto& offset) {
      // Sums of floats run in double: a long line stays accurate.
      std::conditional_t<is_floating_type<T>, double, std::int64_t> total = 0;
      for (std::int64_t i = 0; i < length; ++i) {
        const std::int64_t at = arguments.reverse ? length - 1 - i : i;
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
