#include "arguments/order.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "cpu/lines.hpp"

namespace lockstep::cpu_kernels {
namespace {

/// True if a comes before b in rising order; NaN counts as the largest.
template <class T>
bool rises(T a, T b) {
  return a < b || (b != b && a == a);
}

/// How many of `length` rising elements stand before a value.
template <class T>
std::int64_t places_before(const T* line, std::int64_t stride, std::int64_t length, T value,
                           bool right) {
  std::int64_t first = 0;
  while (length > 0) {
    const std::int64_t half = length / 2;
    const auto at = widen(line[(first + half) * stride]);
    const bool before = right ? !rises(widen(value), at) : rises(at, widen(value));
    first = before ? first + half + 1 : first;
    length = before ? length - half - 1 : half;
  }
  return first;
}

}  // namespace

void order::argsort(const kernels::ArgsortArguments& arguments, StreamRef) {
  const ArrayView &out = arguments.out, &in = arguments.in;
  const int dim = arguments.dim;
  const std::int64_t length = in.shape[dim], step = in.strides[dim];
  dispatch_all(in.dtype, "argsort", [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_line(in.shape, dim, {&out.strides, &in.strides}, [&](const auto& offset) {
      const T* line = in.as<const T>() + offset[1];
      std::vector<std::int64_t> order(static_cast<std::size_t>(length));
      std::iota(order.begin(), order.end(), 0);
      std::ranges::stable_sort(order, [&](std::int64_t a, std::int64_t b) {
        const auto x = widen(line[a * step]), y = widen(line[b * step]);
        return arguments.descending ? rises(y, x) : rises(x, y);
      });
      std::int64_t* const to = out.as<std::int64_t>() + offset[0];
      for (std::int64_t i = 0; i < length; ++i)
        to[i * out.strides[dim]] = order[static_cast<std::size_t>(i)];
    });
  });
}

void order::search(const kernels::SearchArguments& arguments, StreamRef) {
  const ArrayView &out = arguments.out, &sorted = arguments.sorted, &values = arguments.values;
  const int dim = out.rank() - 1;
  dispatch_numeric(values.dtype, "searchsorted", [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_line(values.shape, dim, {&out.strides, &sorted.strides, &values.strides},
                  [&](const auto& offset) {
                    for (std::int64_t i = 0; i < values.shape[dim]; ++i)
                      out.as<std::int64_t>()[offset[0] + i * out.strides[dim]] = places_before(
                          sorted.as<const T>() + offset[1], sorted.strides[dim], sorted.shape[dim],
                          values.as<const T>()[offset[2] + i * values.strides[dim]],
                          arguments.right);
                  });
  });
}

}  // namespace lockstep::cpu_kernels
