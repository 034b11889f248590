#include "arguments/row_scale.hpp"
#include "cuda/group.hpp"
#include "functional/math.hpp"

namespace lockstep::cuda_kernels {
namespace {

struct Largest {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};

template <class Group, class T>
__global__ void __launch_bounds__(row_threads)
    row_scale_kernel(std::int64_t rows, std::int64_t columns, T* y, const T* x,
                     AccumulateType<T> floor) {
  using A = AccumulateType<T>;
  const Group group;
  for (std::int64_t row = first_row<Group>(); row < rows; row += row_step<Group>()) {
    const T* const from = x + row * columns;
    A largest = floor;
    for (std::int64_t i = group.rank(); i < columns; i += group.size())
      largest = Largest{}(largest, functional::math::abs(convert<A>(from[i])));
    largest = group.reduce(largest, Largest{});
    for (std::int64_t i = group.rank(); i < columns; i += group.size())
      y[row * columns + i] = convert<T>(convert<A>(from[i]) / largest);
  }
}

}  // namespace

void row_scale::forward(const kernels::RowScaleArguments& arguments, StreamRef stream) {
  const ArrayView &y = arguments.y, &x = arguments.x;
  const std::int64_t columns = x.shape.back();
  if (columns == 0) return;
  dispatch_floating(x.dtype, "row_scale", [&]<class T>(TypeTag<T>) {
    launch_rows(stream, x.numel() / columns, columns, row_scale_kernel<WarpGroup, T>,
                row_scale_kernel<BlockGroup, T>, y.as<T>(), x.as<T>(),
                static_cast<AccumulateType<T>>(arguments.floor));
  });
}

}  // namespace lockstep::cuda_kernels
