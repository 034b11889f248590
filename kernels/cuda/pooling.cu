#include "cuda/image.hpp"
#include "cuda/pooling.hpp"

namespace lockstep::cuda_kernels {
namespace {

struct Range {
  std::int64_t begin, end;
};

/// Positions of the input that window i covers, clipped to the image.
__device__ Range window(const PoolAxis& axis, std::int64_t i) {
  if (axis.adaptive) return {i * axis.in / axis.out, ((i + 1) * axis.in + axis.out - 1) / axis.out};
  const std::int64_t start = i * axis.stride - axis.padding;
  const std::int64_t end = start + axis.kernel < axis.in ? start + axis.kernel : axis.in;
  const std::int64_t begin = start > 0 ? start : 0;
  return {begin, end > begin ? end : begin};
}

/// Windows that cover position `at` of the input.
__device__ Range covering(const PoolAxis& axis, std::int64_t at) {
  if (axis.adaptive) {
    const std::int64_t end = ((at + 1) * axis.out + axis.in - 1) / axis.in;
    return {at * axis.out / axis.in, end < axis.out ? end : axis.out};
  }
  const std::int64_t padded = at + axis.padding;
  const std::int64_t first = padded - axis.kernel + 1;
  const std::int64_t end = padded / axis.stride + 1;
  return {first > 0 ? (first + axis.stride - 1) / axis.stride : 0, end < axis.out ? end : axis.out};
}

/// Extent of window i within the padded image.
__device__ std::int64_t padded_extent(const PoolAxis& axis, std::int64_t i) {
  const std::int64_t start = i * axis.stride - axis.padding;
  const std::int64_t limit = axis.in + axis.padding;
  const std::int64_t end = start + axis.kernel < limit ? start + axis.kernel : limit;
  return end > start ? end - start : 0;
}

/// What the sum of window (i, j) is divided by.
__device__ std::int64_t divisor(const PoolWindows& windows, std::int64_t i, std::int64_t j) {
  const PoolAxis& vertical = windows.axis[0];
  const PoolAxis& horizontal = windows.axis[1];
  if (windows.count_padding) return padded_extent(vertical, i) * padded_extent(horizontal, j);
  const Range rows = window(vertical, i);
  const Range columns = window(horizontal, j);
  const std::int64_t covered = (rows.end - rows.begin) * (columns.end - columns.begin);
  return covered > 0 ? covered : 1;
}

template <class T>
__global__ void __launch_bounds__(image_threads)
    max_pool_kernel(Image out, Image in, PoolWindows windows, T* y, std::int64_t* index,
                    const T* x) {
  using A = AccumulateType<T>;
  for (std::int64_t i = global_thread(); i < out.count(); i += grid_threads()) {
    const Place at = out.place(i);
    const Range rows = window(windows.axis[0], at.h);
    const Range columns = window(windows.axis[1], at.w);
    A best = -A(__builtin_huge_valf());
    std::int64_t where = -1;
    for (std::int64_t h = rows.begin; h < rows.end; ++h)
      for (std::int64_t w = columns.begin; w < columns.end; ++w) {
        const A value = convert<A>(x[in.offset({at.n, at.c, h, w})]);
        const bool first_nan = value != value && best == best;
        if (where >= 0 && !(value > best) && !first_nan) continue;
        best = value;
        where = h * in.extent[3] + w;
      }
    y[out.offset(at)] = convert<T>(best);
    index[out.offset(at)] = where;
  }
}

/// The sum of term(h, w) over a rectangle, compensated (Kahan 1965): one thread adds a whole
/// window.
template <class A, class Term>
__device__ A sum_over(Range rows, Range columns, Term term) {
  A sum = 0;
  A lost = 0;
  for (std::int64_t h = rows.begin; h < rows.end; ++h)
    for (std::int64_t w = columns.begin; w < columns.end; ++w) {
      const A value = term(h, w);
      const A next = sum + (value - lost);
      // Infinities and NaN stay what they are.
      lost = next - next == A(0) ? (next - sum) - (value - lost) : A(0);
      sum = next;
    }
  return sum;
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
    return sum_over<A>(covering(windows.axis[0], at.h), covering(windows.axis[1], at.w),
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
    const A sum = sum_over<A>(window(windows.axis[0], at.h), window(windows.axis[1], at.w),
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
    return sum_over<A>(covering(windows.axis[0], at.h), covering(windows.axis[1], at.w),
                       [&](std::int64_t h, std::int64_t w) {
                         return convert<A>(dy[out.offset({at.n, at.c, h, w})]) /
                                static_cast<A>(divisor(windows, h, w));
                       });
  }
};

}  // namespace

void max_pool(const ArrayView& y, const ArrayView& index, const ArrayView& x,
              const PoolWindows& windows, StreamRef stream) {
  dispatch_floating(y.dtype, "max_pool", [&]<class T>(TypeTag<T>) {
    launch(stream, grid_for(y.numel(), image_threads), image_threads, 0, max_pool_kernel<T>,
           Image(y), Image(x), windows, y.as<T>(), index.as<std::int64_t>(), x.as<T>());
  });
}

void max_pool_backward(const ArrayView& dx, const ArrayView& dy, const ArrayView& index,
                       const PoolWindows& windows, StreamRef stream) {
  dispatch_floating(dx.dtype, "max_pool_backward", [&]<class T>(TypeTag<T>) {
    launch_gather<T>(dx,
                     MaxPoolBackward<T>{.windows = windows,
                                        .out = Image(dy),
                                        .width = dx.shape[3],
                                        .dy = dy.as<T>(),
                                        .index = index.as<std::int64_t>()},
                     stream);
  });
}

void average_pool(const ArrayView& y, const ArrayView& x, const PoolWindows& windows,
                  StreamRef stream) {
  dispatch_floating(y.dtype, "average_pool", [&]<class T>(TypeTag<T>) {
    launch_gather<T>(y, AveragePool<T>{windows, Image(x), x.as<T>()}, stream);
  });
}

void average_pool_backward(const ArrayView& dx, const ArrayView& dy, const PoolWindows& windows,
                           StreamRef stream) {
  dispatch_floating(dx.dtype, "average_pool_backward", [&]<class T>(TypeTag<T>) {
    launch_gather<T>(dx, AveragePoolBackward<T>{windows, Image(dy), dy.as<T>()}, stream);
  });
}

}  // namespace lockstep::cuda_kernels
