#include "cuda/batch_norm.hpp"
#include "cuda/columns.hpp"
#include "cuda/pointwise.hpp"
#include "functional/batch_norm.hpp"

namespace lockstep::cuda_kernels {
namespace {

using functional::NormSums;

/// [N, C, ...] as images of `pixels` neighbours with one stride.
struct Channels {
  std::int64_t images, channels, pixels;
  std::int64_t image_stride, channel_stride, pixel_stride;

  explicit Channels(const ArrayView& x) {
    images = x.shape[0];
    channels = x.shape[1];
    pixels = 1;
    for (int d = 2; d < x.rank(); ++d) pixels *= x.shape[d];
    image_stride = x.strides[0];
    channel_stride = x.strides[1];
    pixel_stride = 1;
    for (int d = x.rank() - 1; d >= 2; --d)
      if (x.shape[d] > 1) {
        pixel_stride = x.strides[d];
        break;
      }
  }
  std::int64_t rows() const { return images * pixels; }
  __device__ std::int64_t offset(std::int64_t row, std::int64_t channel) const {
    return row / pixels * image_stride + row % pixels * pixel_stride + channel * channel_stride;
  }
};

/// A block a channel and a share of the batch: neighbouring threads take neighbouring pixels.
template <class Value, class Term>
__global__ void __launch_bounds__(row_threads)
    reduce_planes_kernel(std::int64_t rows, std::int64_t channels, Term term, Value* partial) {
  const BlockGroup group;
  const std::int64_t share = (rows + gridDim.y - 1) / gridDim.y;
  const std::int64_t first = blockIdx.y * share;
  const std::int64_t last = first + share < rows ? first + share : rows;
  Value sum{};
  for (std::int64_t row = first + threadIdx.x; row < last; row += row_threads)
    sum = sum + term(row, blockIdx.x);
  sum = group.reduce(sum, Sum{});
  if (threadIdx.x == 0) partial[blockIdx.y * channels + blockIdx.x] = sum;
}

/// Calls `store(channel, sum of term(row, channel))`, reading memory in its order.
template <class Value, class Term, class Store>
void reduce_channels(StreamRef stream, const Channels& x, void* scratch, const Term& term,
                     const Store& store) {
  if (x.channels == 0) return;
  auto* const partial = static_cast<Value*>(scratch);
  if (x.channel_stride == 1)
    return reduce_columns<Value>(stream, x.rows(), x.channels, partial, term, store);
  const auto splits = static_cast<unsigned>(row_blocks(x.rows()));
  launch(stream, dim3(static_cast<unsigned>(x.channels), splits), dim3(row_threads), 0,
         reduce_planes_kernel<Value, Term>, x.rows(), x.channels, term, partial);
  using Load = LoadPartial<Value>;
  using Final = StoreFinal<Value, Store>;
  const auto across = static_cast<unsigned>((x.channels + column_width - 1) / column_width);
  launch(stream, dim3(across), dim3(column_width, column_height), 0,
         reduce_columns_kernel<Value, Load, Final>, static_cast<std::int64_t>(splits), x.channels,
         Load{partial, x.channels}, Final{store});
}

template <class T>
struct ValueTerm {
  const T* x;
  Channels channels;
  __device__ AccumulateType<T> operator()(std::int64_t row, std::int64_t channel) const {
    return convert<AccumulateType<T>>(x[channels.offset(row, channel)]);
  }
};

template <class T>
struct SquareTerm {
  const T* x;
  const AccumulateType<T>* mean;
  Channels channels;
  __device__ AccumulateType<T> operator()(std::int64_t row, std::int64_t channel) const {
    const auto centred =
        convert<AccumulateType<T>>(x[channels.offset(row, channel)]) - mean[channel];
    return centred * centred;
  }
};

template <class T>
struct GradientTerm {
  const T* dy;
  const T* x;
  const AccumulateType<T>* mean;
  const AccumulateType<T>* rstd;
  Channels dy_channels, x_channels;
  __device__ NormSums<AccumulateType<T>> operator()(std::int64_t row, std::int64_t channel) const {
    return of(dy[dy_channels.offset(row, channel)], row, channel);
  }
  __device__ NormSums<AccumulateType<T>> of(T gradient, std::int64_t row,
                                            std::int64_t channel) const {
    using A = AccumulateType<T>;
    return functional::batch_norm_terms<A>(convert<A>(gradient),
                                           convert<A>(x[x_channels.offset(row, channel)]),
                                           {mean[channel], rstd[channel]});
  }
};

/// Writes each element of dz before it counts.
template <class T>
struct ReluGradientTerm {
  GradientTerm<T> term;
  const T* y;
  T* dz;
  Channels y_channels, dz_channels;
  __device__ NormSums<AccumulateType<T>> operator()(std::int64_t row, std::int64_t channel) const {
    using A = AccumulateType<T>;
    const T dy = term.dy[term.dy_channels.offset(row, channel)];
    const T gradient = convert<T>(functional::batch_norm_relu_gradient(
        convert<A>(dy), convert<A>(y[y_channels.offset(row, channel)])));
    dz[dz_channels.offset(row, channel)] = gradient;
    return term.of(gradient, row, channel);
  }
};

template <class A>
struct StoreMean {
  A* to;
  A count;
  __device__ void operator()(std::int64_t channel, A sum) const { to[channel] = sum / count; }
};

template <class A>
struct StoreSums {
  A* to;
  std::int64_t channels;
  __device__ void operator()(std::int64_t channel, const NormSums<A>& sums) const {
    to[channel] = sums.plain;
    to[channels + channel] = sums.product;
  }
};

template <class A>
struct InverseDeviation {
  A eps;
  __device__ A operator()(A variance) const { return functional::inverse_deviation(variance, eps); }
};

template <class T, class A>
struct MoveRunning {
  A momentum, factor;
  __device__ T operator()(T running, A batch) const {
    return convert<T>(functional::moved_running(convert<A>(running), factor * batch, momentum));
  }
};

template <class T>
struct Normalise {
  using A = AccumulateType<T>;
  bool relu;
  __device__ T operator()(T x, A mean, A rstd, A weight, A bias) const {
    return finish(functional::batch_norm<A>(convert<A>(x), mean, rstd * weight, bias));
  }
  __device__ T operator()(T x, A mean, A rstd, A weight, A bias, T residual) const {
    return finish(functional::batch_norm<A>(convert<A>(x), mean, rstd * weight, bias) +
                  convert<A>(residual));
  }
  __device__ T finish(A z) const { return convert<T>(relu ? functional::batch_norm_relu(z) : z); }
};

template <class T>
struct NormaliseBackward {
  using A = AccumulateType<T>;
  A inverse_count;
  __device__ T operator()(T dy, T x, A mean, A rstd, A weight, A sum, A product_sum) const {
    return convert<T>(functional::batch_norm_gradient<A>(
        convert<A>(dy), convert<A>(x), {mean, rstd}, weight, {sum, product_sum}, inverse_count));
  }
};

}  // namespace

std::size_t channel_scratch_bytes(const ArrayView& x) {
  const Channels channels(x);
  return column_scratch<NormSums<double>>(channels.rows(), channels.channels);
}

void channel_mean(const ArrayView& mean, const ArrayView& x, void* scratch, StreamRef stream) {
  const Channels channels(x);
  dispatch_floating(x.dtype, "batch_norm", [&]<class T>(TypeTag<T>) {
    using A = AccumulateType<T>;
    reduce_channels<A>(stream, channels, scratch, ValueTerm<T>{x.as<T>(), channels},
                       StoreMean<A>{mean.as<A>(), static_cast<A>(channels.rows())});
  });
}

void channel_variance(const ArrayView& variance, const ArrayView& mean, const ArrayView& x,
                      void* scratch, StreamRef stream) {
  const Channels channels(x);
  dispatch_floating(x.dtype, "batch_norm", [&]<class T>(TypeTag<T>) {
    using A = AccumulateType<T>;
    reduce_channels<A>(stream, channels, scratch, SquareTerm<T>{x.as<T>(), mean.as<A>(), channels},
                       StoreMean<A>{variance.as<A>(), static_cast<A>(channels.rows())});
  });
}

void channel_gradient_sums(const ArrayView& sums, const ArrayView& dy, const ArrayView& x,
                           const ArrayView& mean, const ArrayView& rstd,
                           const kernels::BatchNormRelu& relu, void* scratch, StreamRef stream) {
  const Channels channels(x);
  dispatch_floating(x.dtype, "batch_norm_backward", [&]<class T>(TypeTag<T>) {
    using A = AccumulateType<T>;
    const StoreSums<A> store{sums.as<A>(), channels.channels};
    const GradientTerm<T> term{dy.as<T>(),   x.as<T>(),    mean.as<A>(),
                               rstd.as<A>(), Channels(dy), channels};
    if (!relu.y) return reduce_channels<NormSums<A>>(stream, channels, scratch, term, store);
    const ReluGradientTerm<T> behind{term, relu.y.as<T>(), relu.dz.as<T>(), Channels(relu.y),
                                     Channels(relu.dz)};
    reduce_channels<NormSums<A>>(stream, channels, scratch, behind, store);
  });
}

void inverse_deviation(const ArrayView& to, const ArrayView& variance, double eps,
                       StreamRef stream) {
  if (to.dtype == DType::f64)
    pointwise<double, double>(stream, InverseDeviation<double>{eps}, to, variance);
  else
    pointwise<float, float>(stream, InverseDeviation<float>{static_cast<float>(eps)}, to, variance);
}

void move_running(const ArrayView& running, const ArrayView& batch, double momentum, double factor,
                  StreamRef stream) {
  dispatch_floating(running.dtype, "batch_norm", [&]<class T>(TypeTag<T>) {
    using A = AccumulateType<T>;
    const MoveRunning<T, A> op{static_cast<A>(momentum), static_cast<A>(factor)};
    pointwise<T, T, A>(stream, op, running, running, batch);
  });
}

void normalise(const Normalisation& a, StreamRef stream) {
  dispatch_floating(a.x.dtype, "batch_norm", [&]<class T>(TypeTag<T>) {
    using A = AccumulateType<T>;
    const Normalise<T> op{a.relu};
    if (a.residual)
      pointwise<T, T, A, A, A, A, T>(stream, op, a.y, a.x, a.mean, a.rstd, a.weight, a.bias,
                                     a.residual);
    else
      pointwise<T, T, A, A, A, A>(stream, op, a.y, a.x, a.mean, a.rstd, a.weight, a.bias);
  });
}

void normalise_backward(const NormaliseGradient& arrays, StreamRef stream) {
  dispatch_floating(arrays.x.dtype, "batch_norm_backward", [&]<class T>(TypeTag<T>) {
    using A = AccumulateType<T>;
    const NormaliseBackward<T> op{static_cast<A>(1.0 / arrays.count)};
    pointwise<T, T, T, A, A, A, A, A>(stream, op, arrays.dx, arrays.dy, arrays.x, arrays.mean,
                                      arrays.rstd, arrays.weight, arrays.sum, arrays.product_sum);
  });
}

}  // namespace lockstep::cuda_kernels
