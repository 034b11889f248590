#include "tensor/fill.hpp"

#include "backend/backend.hpp"
#include "lockstep/tensor/factories.hpp"

namespace lockstep {

void fill_view(const Tensor& tensor, const Scalar& value) {
  const auto& kernels = backend::of(tensor.device()).elementwise;
  const StreamRef stream = current_stream(tensor.device());
  if (is_floating(tensor.dtype()) || value.fits_double()) {
    kernels.fill({.out = tensor.view(), .value = value.to_double()}, stream);
    return;
  }
  const std::int64_t number = value.integer();
  const Tensor one = from_span<std::int64_t>({&number, 1}, {}, tensor.device());
  ArrayView repeated = one.view();
  repeated.shape = tensor.shape();
  repeated.strides = Dims::filled(tensor.dim(), 0);
  kernels.copy({.out = tensor.view(), .in = repeated}, stream);
}

}  // namespace lockstep
