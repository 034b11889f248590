#include "arguments/softmax.hpp"
#include "cuda/row_access.hpp"
#include "functional/softmax.hpp"

namespace lockstep::cuda_kernels {
namespace {

template <class Group, bool log, class T>
__global__ void __launch_bounds__(row_threads)
    softmax_kernel(std::int64_t rows, std::int64_t columns, T* y, const T* x) {
  const Group group;
  for (std::int64_t row = first_row<Group>(); row < rows; row += row_step<Group>())
    functional::softmax_row<log, AccumulateType<T>>(group, y + row * columns, x + row * columns,
                                                    columns);
}

template <class Group, bool log, class T>
__global__ void __launch_bounds__(row_threads)
    softmax_backward_kernel(std::int64_t rows, std::int64_t columns, T* dx, const T* dy,
                            const T* y) {
  const Group group;
  for (std::int64_t row = first_row<Group>(); row < rows; row += row_step<Group>()) {
    const std::int64_t start = row * columns;
    functional::softmax_backward_row<log, AccumulateType<T>>(group, dx + start, dy + start,
                                                             y + start, columns);
  }
}

void require_last(int dim) {
  LOCKSTEP_CHECK(dim == -1, Unsupported, "softmax: dimension ", dim,
                 " on a GPU; only the last, -1");
}

template <bool log>
void softmax_with(const kernels::SoftmaxArguments& arguments, StreamRef stream) {
  const ArrayView &y = arguments.y, &x = arguments.x;
  const std::int64_t columns = x.shape.back();
  if (columns == 0) return;
  dispatch_floating(x.dtype, "softmax", [&]<class T>(TypeTag<T>) {
    with_lanes<T>(rows_are_wide<T>(columns, y.data, x.data), [&](auto lanes) {
      launch_rows(stream, x.numel() / columns, columns,
                  softmax_kernel<WideGroup<WarpGroup, lanes>, log, T>,
                  softmax_kernel<WideGroup<BlockGroup, lanes>, log, T>, y.as<T>(), x.as<T>());
    });
  });
}

template <bool log>
void softmax_backward_with(const kernels::SoftmaxBackwardArguments& arguments, StreamRef stream) {
  const ArrayView &dx = arguments.dx, &dy = arguments.dy, &y = arguments.y;
  const std::int64_t columns = y.shape.back();
  if (columns == 0) return;
  dispatch_floating(y.dtype, "softmax_backward", [&]<class T>(TypeTag<T>) {
    with_lanes<T>(rows_are_wide<T>(columns, dx.data, dy.data, y.data), [&](auto lanes) {
      launch_rows(stream, y.numel() / columns, columns,
                  softmax_backward_kernel<WideGroup<WarpGroup, lanes>, log, T>,
                  softmax_backward_kernel<WideGroup<BlockGroup, lanes>, log, T>, dx.as<T>(),
                  dy.as<T>(), y.as<T>());
    });
  });
}

}  // namespace

void softmax::forward(const kernels::SoftmaxArguments& arguments, StreamRef stream) {
  require_last(arguments.dim);
  arguments.log ? softmax_with<true>(arguments, stream) : softmax_with<false>(arguments, stream);
}

void softmax::backward(const kernels::SoftmaxBackwardArguments& arguments, StreamRef stream) {
  require_last(arguments.dim);
  arguments.log ? softmax_backward_with<true>(arguments, stream)
                : softmax_backward_with<false>(arguments, stream);
}

}  // namespace lockstep::cuda_kernels
