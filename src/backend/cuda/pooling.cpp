#include "cuda/pooling.hpp"

#include "backend/cuda/families.hpp"
#include "backend/spatial.hpp"

namespace lockstep::backend {
namespace {

namespace kernels = cuda_kernels;

kernels::PoolWindows windows_of(const PoolGeometry& geometry, const ArrayView& pooled,
                                const ArrayView& image) {
  kernels::PoolWindows windows{.axis = {}, .count_padding = geometry.count_include_pad};
  for (int d = 0; d < 2; ++d) {
    const auto i = static_cast<std::size_t>(d);
    windows.axis[i] = {.in = image.shape[2 + d],
                       .out = pooled.shape[2 + d],
                       .kernel = geometry.kernel[i],
                       .stride = geometry.stride[i],
                       .padding = geometry.padding[i]};
  }
  return windows;
}

kernels::PoolWindows adaptive_windows(const ArrayView& pooled, const ArrayView& image) {
  kernels::PoolWindows windows;
  for (int d = 0; d < 2; ++d)
    windows.axis[static_cast<std::size_t>(d)] = {
        .in = image.shape[2 + d], .out = pooled.shape[2 + d], .adaptive = true};
  return windows;
}

class CudaPooling final : public Pooling {
 public:
  void max_forward(const ArrayView& y, const ArrayView& index, const ArrayView& x,
                   const PoolGeometry& geometry, StreamRef stream) override {
    kernels::max_pool(y, index, x, windows_of(geometry, y, x), stream);
  }
  void max_backward(const ArrayView& dx, const ArrayView& dy, const ArrayView& index,
                    const PoolGeometry& geometry, StreamRef stream) override {
    kernels::max_pool_backward(dx, dy, index, windows_of(geometry, dy, dx), stream);
  }
  void average_forward(const ArrayView& y, const ArrayView& x, const PoolGeometry& geometry,
                       StreamRef stream) override {
    kernels::average_pool(y, x, windows_of(geometry, y, x), stream);
  }
  void average_backward(const ArrayView& dx, const ArrayView& dy, const PoolGeometry& geometry,
                        StreamRef stream) override {
    kernels::average_pool_backward(dx, dy, windows_of(geometry, dy, dx), stream);
  }
  void adaptive_average_forward(const ArrayView& y, const ArrayView& x, StreamRef stream) override {
    kernels::average_pool(y, x, adaptive_windows(y, x), stream);
  }
  void adaptive_average_backward(const ArrayView& dx, const ArrayView& dy,
                                 StreamRef stream) override {
    kernels::average_pool_backward(dx, dy, adaptive_windows(dy, dx), stream);
  }
};

}  // namespace

Pooling& cuda_families::pooling() {
  static CudaPooling family;
  return family;
}

}  // namespace lockstep::backend
