#include "arguments/interpolation.hpp"

#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/parallel.hpp"

namespace lockstep::cpu_kernels {
namespace {

using functional::Takers;
using functional::Taps;

void check(const ArrayView& y, const ArrayView& x, const InterpolationAxis& height,
           const InterpolationAxis& width) {
  const bool fit = y.rank() == 4 && x.rank() == 4 && y.dtype == x.dtype &&
                   y.shape == Shape{x.shape[0], x.shape[1], height.out, width.out} &&
                   x.shape[2] == height.in && x.shape[3] == width.in;
  LOCKSTEP_CHECK(fit, InvalidArgument, "interpolation: ", x.dtype, ' ', x.shape,
                 " does not resize to ", y.dtype, ' ', y.shape);
}

std::vector<Taps> all_taps(const InterpolationAxis& axis) {
  std::vector<Taps> taps;
  for (std::int64_t i = 0; i < axis.out; ++i) taps.push_back(functional::taps_of(axis, i));
  return taps;
}

std::vector<Takers> all_takers(const InterpolationAxis& axis) {
  std::vector<Takers> takers;
  for (std::int64_t i = 0; i < axis.in; ++i) takers.push_back(functional::takers_of(axis, i));
  return takers;
}

template <class Value>
const Value& at(const std::vector<Value>& values, std::int64_t i) {
  return values[static_cast<std::size_t>(i)];
}

/// Sets every element to `value(image, channel, row, column)`, in parallel over rows and along them
/// in the order of memory.
template <class T, class Value>
void fill(const ArrayView& to, Value&& value) {
  const std::int64_t channels = to.shape[1], height = to.shape[2], width = to.shape[3];
  parallel_for(to.shape[0] * height, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t image = i / height, h = i % height;
      T* const row = to.as<T>() + image * to.strides[0] + h * to.strides[2];
      const auto set = [&](std::int64_t c, std::int64_t w) {
        row[c * to.strides[1] + w * to.strides[3]] = T(value(image, c, h, w));
      };
      if (to.strides[1] == 1)
        for (std::int64_t w = 0; w < width; ++w)
          for (std::int64_t c = 0; c < channels; ++c) set(c, w);
      else
        for (std::int64_t c = 0; c < channels; ++c)
          for (std::int64_t w = 0; w < width; ++w) set(c, w);
    }
  });
}

/// Reads elements of one channel of an image.
template <class T>
struct Plane {
  const T* data;
  std::int64_t row, column;

  Plane(const ArrayView& view, std::int64_t image, std::int64_t channel)
      : data(view.as<const T>() + image * view.strides[0] + channel * view.strides[1]),
        row(view.strides[2]),
        column(view.strides[3]) {}
  AccumulateType<T> operator()(std::int64_t h, std::int64_t w) const {
    return static_cast<AccumulateType<T>>(data[h * row + w * column]);
  }
};

}  // namespace

void interpolation::forward(const kernels::InterpolationArguments& a, StreamRef) {
  check(a.y, a.x, a.height, a.width);
  const auto rows = all_taps(a.height), columns = all_taps(a.width);
  dispatch_floating(a.x.dtype, "interpolate", [&](auto tag) {
    using T = typename decltype(tag)::type;
    fill<T>(a.y, [&](std::int64_t n, std::int64_t c, std::int64_t i, std::int64_t j) {
      return functional::interpolated<AccumulateType<T>>(at(rows, i), at(columns, j),
                                                         Plane<T>(a.x, n, c));
    });
  });
}

void interpolation::backward(const kernels::InterpolationBackwardArguments& a, StreamRef) {
  check(a.dy, a.dx, a.height, a.width);
  const auto rows = all_taps(a.height), columns = all_taps(a.width);
  const auto row_takers = all_takers(a.height), column_takers = all_takers(a.width);
  const auto row_taps = [&](std::int64_t i) { return at(rows, i); };
  const auto column_taps = [&](std::int64_t j) { return at(columns, j); };
  dispatch_floating(a.dx.dtype, "interpolate backward", [&](auto tag) {
    using T = typename decltype(tag)::type;
    fill<T>(a.dx, [&](std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
      return functional::interpolated_gradient<AccumulateType<T>>(
          h, w, at(row_takers, h), at(column_takers, w), row_taps, column_taps,
          Plane<T>(a.dy, n, c));
    });
  });
}

}  // namespace lockstep::cpu_kernels
