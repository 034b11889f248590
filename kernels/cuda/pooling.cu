#include "arguments/pooling.hpp"
#include "arguments/reduction.hpp"
#include "cuda/global_pooling.hpp"
#include "cuda/image.hpp"

namespace lockstep::cuda_kernels {
namespace {

using functional::pool_window;
using functional::pool_windows_over;
using functional::PoolRange;

/// What the sum of window (i, j) is divided by.
__device__ std::int64_t divisor(const PoolWindows& windows, std::int64_t i, std::int64_t j) {
  return functional::pool_divisor(
      functional::pool_extent(windows.axis[0], i, windows.count_padding),
      functional::pool_extent(windows.axis[1], j, windows.count_padding));
}

/// Positions that a few lanes move together: 16 bytes at most.
template <int lanes>
__device__ void store_positions(std::int32_t* to, const Pack<std::int32_t, lanes>& positions) {
  constexpr int width = lanes < 4 ? lanes : 4;
  LOCKSTEP_UNROLL
  for (int first = 0; first < lanes; first += width) {
    Vector<std::int32_t, width> part;
    LOCKSTEP_UNROLL
    for (int j = 0; j < width; ++j) part.lane[j] = positions[first + j];
    store_vector<width>(to + first, part);
  }
}

template <int lanes>
__device__ Pack<std::int32_t, lanes> load_positions(const std::int32_t* from) {
  constexpr int width = lanes < 4 ? lanes : 4;
  Pack<std::int32_t, lanes> positions;
  LOCKSTEP_UNROLL
  for (int first = 0; first < lanes; first += width) {
    const Vector<std::int32_t, width> part = load_vector<width>(from + first);
    LOCKSTEP_UNROLL
    for (int j = 0; j < width; ++j) positions[first + j] = part.lane[j];
  }
  return positions;
}

template <class T>
struct MaxPool {
  using A = AccumulateType<T>;
  PoolWindows windows;
  Image out, in, positions;
  T* y;
  std::int32_t* index;
  const T* x;

  template <int lanes>
  __device__ void at(const Place& place) const {
    const PoolRange rows = pool_window(windows.axis[0], place.h);
    const PoolRange columns = pool_window(windows.axis[1], place.w);
    functional::PoolMaximum<A, std::int32_t> largest[lanes];
    for (std::int64_t h = rows.begin; h < rows.end; ++h)
      for (std::int64_t w = columns.begin; w < columns.end; ++w) {
        const auto value = load_vector<lanes>(x + in.offset({place.n, place.c, h, w}));
        const auto position = static_cast<std::int32_t>(h * in.extent[3] + w);
        LOCKSTEP_UNROLL
        for (int j = 0; j < lanes; ++j) largest[j].take(convert<A>(value.lane[j]), position);
      }
    Vector<T, lanes> result;
    Pack<std::int32_t, lanes> where;
    LOCKSTEP_UNROLL
    for (int j = 0; j < lanes; ++j) {
      result.lane[j] = convert<T>(largest[j].value);
      where[j] = largest[j].index;
    }
    store_vector<lanes>(y + out.offset(place), result);
    store_positions(index + positions.offset(place), where);
  }
};

/// The sum of term(h, w) over a rectangle.
template <class A, class Term>
__device__ A sum_over(PoolRange rows, PoolRange columns, Term term) {
  functional::PoolSum<A> total;
  for (std::int64_t h = rows.begin; h < rows.end; ++h)
    for (std::int64_t w = columns.begin; w < columns.end; ++w) total.add(term(h, w));
  return total.sum;
}

/// Input positions gather from the windows that cover them and took their maximum there.
template <class T>
struct MaxPoolBackward {
  using A = AccumulateType<T>;
  PoolWindows windows;
  Image in, out, positions;
  T* dx;
  const T* dy;
  const std::int32_t* index;

  template <int lanes>
  __device__ void at(const Place& place) const {
    const PoolRange rows = pool_windows_over(windows.axis[0], place.h);
    const PoolRange columns = pool_windows_over(windows.axis[1], place.w);
    const auto own = static_cast<std::int32_t>(place.h * in.extent[3] + place.w);
    functional::PoolSum<A> sums[lanes];
    for (std::int64_t h = rows.begin; h < rows.end; ++h)
      for (std::int64_t w = columns.begin; w < columns.end; ++w) {
        const Place from{place.n, place.c, h, w};
        const auto taken = load_positions<lanes>(index + positions.offset(from));
        const auto gradient = load_vector<lanes>(dy + out.offset(from));
        LOCKSTEP_UNROLL
        for (int j = 0; j < lanes; ++j)
          sums[j].add(taken[j] == own ? convert<A>(gradient.lane[j]) : A(0));
      }
    Vector<T, lanes> result;
    LOCKSTEP_UNROLL
    for (int j = 0; j < lanes; ++j) result.lane[j] = convert<T>(sums[j].sum);
    store_vector<lanes>(dx + in.offset(place), result);
  }
};

template <class T>
struct AveragePool {
  using A = AccumulateType<T>;
  PoolWindows windows;
  Image in;
  const T* x;

  __device__ A operator()(const Place& at) const {
    const A sum =
        sum_over<A>(pool_window(windows.axis[0], at.h), pool_window(windows.axis[1], at.w),
                    [&](std::int64_t h, std::int64_t w) {
                      return convert<A>(x[in.offset({at.n, at.c, h, w})]);
                    });
    return sum / static_cast<A>(divisor(windows, at.h, at.w));
  }
};

template <class T>
struct AveragePoolBackward {
  using A = AccumulateType<T>;
  PoolWindows windows;
  Image out;
  const T* dy;

  __device__ A operator()(const Place& at) const {
    return sum_over<A>(pool_windows_over(windows.axis[0], at.h),
                       pool_windows_over(windows.axis[1], at.w),
                       [&](std::int64_t h, std::int64_t w) {
                         return convert<A>(dy[out.offset({at.n, at.c, h, w})]) /
                                static_cast<A>(divisor(windows, h, w));
                       });
  }
};

}  // namespace

void pooling::max(const kernels::MaxPoolArguments& a, StreamRef stream) {
  dispatch_floating(a.y.dtype, "max_pool", [&]<class T>(TypeTag<T>) {
    visit_image<T>(stream, a.y,
                   MaxPool<T>{.windows = windows_of(a.geometry, a.y, a.x),
                              .out = Image(a.y),
                              .in = Image(a.x),
                              .positions = Image(a.index),
                              .y = a.y.as<T>(),
                              .index = a.index.as<std::int32_t>(),
                              .x = a.x.as<T>()},
                   a.x, a.index);
  });
}

void pooling::max_backward(const kernels::MaxPoolBackwardArguments& a, StreamRef stream) {
  dispatch_floating(a.dx.dtype, "max_pool_backward", [&]<class T>(TypeTag<T>) {
    visit_image<T>(stream, a.dx,
                   MaxPoolBackward<T>{.windows = windows_of(a.geometry, a.dy, a.dx),
                                      .in = Image(a.dx),
                                      .out = Image(a.dy),
                                      .positions = Image(a.index),
                                      .dx = a.dx.as<T>(),
                                      .dy = a.dy.as<T>(),
                                      .index = a.index.as<std::int32_t>()},
                   a.dy, a.index);
  });
}

void pooling::average(const kernels::AveragePoolArguments& a, StreamRef stream) {
  const PoolWindows windows = windows_of(a.geometry, a.y, a.x);
  dispatch_floating(a.y.dtype, "average_pool", [&]<class T>(TypeTag<T>) {
    const GlobalPool global = global_pool<T>(windows, a.y, a.x);
    if (global_mean(global, a.y.as<T>(), static_cast<const T*>(a.x.as<T>()), stream)) return;
    if (is_mean_of_large_image(windows))
      return reduction::reduce({.op = ReduceOp::mean, .out = a.y, .in = a.x}, stream);
    launch_gather<T>(a.y, AveragePool<T>{windows, Image(a.x), a.x.as<T>()}, stream);
  });
}

void pooling::average_backward(const kernels::AveragePoolBackwardArguments& a, StreamRef stream) {
  const PoolWindows windows = windows_of(a.geometry, a.dy, a.dx);
  dispatch_floating(a.dx.dtype, "average_pool_backward", [&]<class T>(TypeTag<T>) {
    const GlobalPool global = global_pool<T>(windows, a.dy, a.dx);
    if (global_mean_backward(global, a.dx.as<T>(), static_cast<const T*>(a.dy.as<T>()), stream))
      return;
    launch_gather<T>(a.dx, AveragePoolBackward<T>{windows, Image(a.dy), a.dy.as<T>()}, stream);
  });
}

}  // namespace lockstep::cuda_kernels
