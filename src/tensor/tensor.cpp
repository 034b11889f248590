#include "lockstep/tensor/tensor.hpp"

#include <cstring>

#include "backend/backend.hpp"
#include "lockstep/runtime/device_runtime.hpp"
#include "lockstep/tensor/factories.hpp"
#include "runtime/step_recording.hpp"

namespace lockstep {

void Tensor::throw_undefined() {
  LOCKSTEP_THROW(InvalidArgument,
                 "the tensor is undefined; create it with empty(), zeros(), tensor() or an op");
}

namespace {

void refuse_to_read(Device device) {
  refuse_in_captured_step("values are read on the host", "return the tensor, and read it later",
                          device);
}

}  // namespace

void Tensor::check_type(DType wanted) const {
  if (device().is_cpu()) refuse_to_read(device());
  LOCKSTEP_CHECK(dtype() == wanted, InvalidArgument, "data<", wanted, ">() of a tensor of dtype ",
                 dtype());
}

void Tensor::check_flat() const {
  LOCKSTEP_CHECK(device().is_cpu(), InvalidArgument,
                 "flat() needs a tensor on the cpu, this one is on ", device(),
                 "; call to(lockstep::cpu) first");
  LOCKSTEP_CHECK(is_contiguous(), InvalidArgument,
                 "flat() needs a contiguous tensor, this one has shape ", shape(), " and strides ",
                 strides(), "; call contiguous() first");
}

bool Tensor::is_channels_last() const {
  return dim() == 4 && strides() == channels_last_strides(shape());
}

namespace {

/// A contiguous copy on the host, of another dtype if asked; ready when the call returns.
Tensor host_copy(const Tensor& from, DType dtype) {
  const Device device = from.device();
  refuse_to_read(device);
  const StreamRef stream = current_stream(device);
  const Tensor packed = empty(from.shape(), {dtype, device});
  backend::of(device).elementwise.copy({.out = packed.view(), .in = from.view()}, stream);
  if (device.is_cpu()) return packed;
  const Tensor host = empty(from.shape(), {dtype, cpu});
  device_runtime(device.type).copy(host.data_ptr(), packed.data_ptr(), packed.nbytes(), stream);
  synchronize(stream);
  return host;
}

}  // namespace

template <class T>
std::vector<T> Tensor::to_vector() const {
  const Tensor host = host_copy(*this, dtype_of<T>);
  const T* first = host.data<T>();
  return std::vector<T>(first, first + host.numel());
}
template std::vector<double> Tensor::to_vector() const;
template std::vector<float> Tensor::to_vector() const;
template std::vector<BFloat16> Tensor::to_vector() const;
template std::vector<Half> Tensor::to_vector() const;
template std::vector<std::int64_t> Tensor::to_vector() const;
template std::vector<std::int32_t> Tensor::to_vector() const;
template std::vector<std::uint8_t> Tensor::to_vector() const;
template std::vector<bool> Tensor::to_vector() const;

void Tensor::copy_item(DType dtype, void* to) const {
  LOCKSTEP_CHECK(numel() == 1, InvalidArgument, "item() needs one element, this tensor has shape ",
                 shape());
  std::memcpy(to, host_copy(*this, dtype).data_ptr(), size_of(dtype));
}

}  // namespace lockstep
