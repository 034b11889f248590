#include "cuda/generate.hpp"
#include "cuda/launch.hpp"

namespace lockstep::cuda_kernels {
namespace {

template <class T>
__global__ void arange_kernel(T* out, std::int64_t count, double start, double step) {
  for (std::int64_t i = global_thread(); i < count; i += grid_threads())
    out[i] = T(static_cast<AccumulateType<T>>(start + static_cast<double>(i) * step));
}

}  // namespace

void arange(const ArrayView& out, double start, double step, StreamRef stream) {
  constexpr int threads = 256;
  const std::int64_t count = out.numel();
  if (count == 0) return;
  dispatch_numeric(out.dtype, "arange", [&]<class T>(TypeTag<T>) {
    launch(stream, grid_for(count, threads), threads, 0, arange_kernel<T>, out.as<T>(), count,
           start, step);
  });
}

}  // namespace lockstep::cuda_kernels
