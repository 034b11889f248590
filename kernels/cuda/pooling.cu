#include "arguments/pooling.hpp"
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

template <class T>
__global__ void __launch_bounds__(image_threads)
    max_pool_kernel(Image out, Image in, PoolWindows windows, T* y, std::int64_t* index,
                    const T* x) {
  using A = AccumulateType<T>;
  for (std::int64_t i = global_thread(); i < out.count(); i += grid_threads()) {
    const Place at = out.place(i);
    const PoolRange rows = pool_window(windows.axis[0], at.h);
    const PoolRange columns = pool_window(windows.axis[1], at.w);
    functional::PoolMaximum<A> largest;
    for (std::int64_t h = rows.begin; h < rows.end; ++h)
      for (std::int64_t w = columns.begin; w < columns.end; ++w)
        largest.take(convert<A>(x[in.offset({at.n, at.c, h, w})]), h * in.extent[3] + w);
    y[out.offset(at)] = convert<T>(largest.value);
    index[out.offset(at)] = largest.index;
  }
}

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
  Image out;
  std::int64_t width;  ///< of the input
  const T* dy;
  const std::int64_t* index;

  __device__ A operator()(const Place& at) const {
    return sum_over<A>(pool_windows_over(windows.axis[0], at.h),
                       pool_windows_over(windows.axis[1], at.w),
                       [&](std::int64_t h, std::int64_t w) {
                         const std::int64_t from = out.offset({at.n, at.c, h, w});
                         const bool taken = index[from] == at.h * width + at.w;
                         return taken ? convert<A>(dy[from]) : A(0);
                       });
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
  const PoolWindows windows = windows_of(a.geometry, a.y, a.x);
  dispatch_floating(a.y.dtype, "max_pool", [&]<class T>(TypeTag<T>) {
    launch(stream, grid_for(a.y.numel(), image_threads), image_threads, 0, max_pool_kernel<T>,
           Image(a.y), Image(a.x), windows, a.y.as<T>(), a.index.as<std::int64_t>(), a.x.as<T>());
  });
}

void pooling::max_backward(const kernels::MaxPoolBackwardArguments& a, StreamRef stream) {
  dispatch_floating(a.dx.dtype, "max_pool_backward", [&]<class T>(TypeTag<T>) {
    launch_gather<T>(a.dx,
                     MaxPoolBackward<T>{.windows = windows_of(a.geometry, a.dy, a.dx),
                                        .out = Image(a.dy),
                                        .width = a.dx.shape[3],
                                        .dy = a.dy.as<T>(),
                                        .index = a.index.as<std::int64_t>()},
                     stream);
  });
}

void pooling::average(const kernels::AveragePoolArguments& a, StreamRef stream) {
  const PoolWindows windows = windows_of(a.geometry, a.y, a.x);
  dispatch_floating(a.y.dtype, "average_pool", [&]<class T>(TypeTag<T>) {
    launch_gather<T>(a.y, AveragePool<T>{windows, Image(a.x), a.x.as<T>()}, stream);
  });
}

void pooling::average_backward(const kernels::AveragePoolBackwardArguments& a, StreamRef stream) {
  const PoolWindows windows = windows_of(a.geometry, a.dy, a.dx);
  dispatch_floating(a.dx.dtype, "average_pool_backward", [&]<class T>(TypeTag<T>) {
    launch_gather<T>(a.dx, AveragePoolBackward<T>{windows, Image(a.dy), a.dy.as<T>()}, stream);
  });
}

}  // namespace lockstep::cuda_kernels
