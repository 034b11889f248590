#include "cuda/log_sum_exp.hpp"
#include "cuda/softmax.hpp"

namespace lockstep::cuda_kernels {
namespace {

template <class Group, bool log, class T>
__global__ void __launch_bounds__(row_threads)
    softmax_kernel(std::int64_t rows, std::int64_t columns, T* y, const T* x, bool wide) {
  constexpr int N = lanes_of<T>;
  const Group group;
  for (std::int64_t row = first_row<Group>(); row < rows; row += row_step<Group>()) {
    const T* const in = x + row * columns;
    const auto state = row_log_sum_exp<N>(group, in, columns, wide);
    const auto shift = log ? state.value() : state.maximum;
    const auto scale = 1 / state.sum;
    for_each_chunk<N>(group, columns, [&](std::int64_t at) {
      auto v = load_row<N>(in, at, columns, wide);
      LOCKSTEP_UNROLL
      for (int j = 0; j < N; ++j) {
        const auto distance = v.value[j] - shift;
        v.value[j] = log ? distance : functional::math::exp(distance) * scale;
      }
      store_row<N>(y + row * columns, at, columns, wide, v);
    });
  }
}

template <class Group, bool log, class T>
__global__ void __launch_bounds__(row_threads)
    softmax_backward_kernel(std::int64_t rows, std::int64_t columns, T* dx, const T* dy, const T* y,
                            bool wide) {
  constexpr int N = lanes_of<T>;
  const Group group;
  for (std::int64_t row = first_row<Group>(); row < rows; row += row_step<Group>()) {
    const std::int64_t start = row * columns;
    AccumulateType<T> sum = 0;
    for_each_chunk<N>(group, columns, [&](std::int64_t at) {
      const auto g = load_row<N>(dy + start, at, columns, wide);
      const auto p = load_row<N>(y + start, at, columns, wide);
      LOCKSTEP_UNROLL
      for (int j = 0; j < N; ++j) sum += log ? g.value[j] : g.value[j] * p.value[j];
    });
    sum = group.reduce(sum, Sum{});
    for_each_chunk<N>(group, columns, [&](std::int64_t at) {
      auto g = load_row<N>(dy + start, at, columns, wide);
      const auto p = load_row<N>(y + start, at, columns, wide);
      LOCKSTEP_UNROLL
      for (int j = 0; j < N; ++j)
        g.value[j] = log ? g.value[j] - functional::math::exp(p.value[j]) * sum
                         : p.value[j] * (g.value[j] - sum);
      store_row<N>(dx + start, at, columns, wide, g);
    });
  }
}

template <bool log>
void softmax_with(const ArrayView& y, const ArrayView& x, StreamRef stream) {
  const std::int64_t columns = x.shape.back();
  if (columns == 0) return;
  dispatch_floating(x.dtype, "softmax", [&]<class T>(TypeTag<T>) {
    launch_rows(stream, x.numel() / columns, columns, softmax_kernel<WarpGroup, log, T>,
                softmax_kernel<BlockGroup, log, T>, y.as<T>(), x.as<T>(),
                rows_are_wide<T>(columns, y.data, x.data));
  });
}

template <bool log>
void softmax_backward_with(const ArrayView& dx, const ArrayView& dy, const ArrayView& y,
                           StreamRef stream) {
  const std::int64_t columns = y.shape.back();
  if (columns == 0) return;
  dispatch_floating(y.dtype, "softmax_backward", [&]<class T>(TypeTag<T>) {
    launch_rows(stream, y.numel() / columns, columns, softmax_backward_kernel<WarpGroup, log, T>,
                softmax_backward_kernel<BlockGroup, log, T>, dx.as<T>(), dy.as<T>(), y.as<T>(),
                rows_are_wide<T>(columns, dx.data, dy.data, y.data));
  });
}

}  // namespace

void softmax(const ArrayView& y, const ArrayView& x, bool log, StreamRef stream) {
  log ? softmax_with<true>(y, x, stream) : softmax_with<false>(y, x, stream);
}

void softmax_backward(const ArrayView& dx, const ArrayView& dy, const ArrayView& y, bool log,
                      StreamRef stream) {
  log ? softmax_backward_with<true>(dx, dy, y, stream)
      : softmax_backward_with<false>(dx, dy, y, stream);
}

}  // namespace lockstep::cuda_kernels
