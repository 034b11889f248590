#include "lockstep/tensor/factories.hpp"

#include <cmath>

#include "backend/backend.hpp"
#include "lockstep/observe/trace_range.hpp"
#include "lockstep/runtime/device_runtime.hpp"
#include "runtime/step_recording.hpp"
#include "tensor/fill.hpp"
#include "tensor/random_draw.hpp"

namespace lockstep {
namespace {

/// An impl without memory: shape, strides and what follows from them.
IntrusivePtr<TensorImpl> make_impl(const Shape& shape, const Strides& strides, DType dtype) {
  auto impl = make_intrusive<TensorImpl>();
  impl->numel = numel(shape);
  impl->dtype = dtype;
  impl->shape = shape;
  impl->strides = strides;
  impl->contiguous = is_contiguous(shape, strides);
  return impl;
}

/// An impl of a row-major array, without memory.
IntrusivePtr<TensorImpl> make_contiguous_impl(const Shape& shape, DType dtype) {
  auto impl = make_intrusive<TensorImpl>();
  impl->numel = numel(shape);
  impl->dtype = dtype;
  impl->shape = impl->strides = shape;
  // In place: a copy of what was just written element by element would stall.
  std::int64_t step = 1;
  for (int i = shape.size() - 1; i >= 0; --i) {
    impl->strides[i] = step;
    step *= shape[i] > 1 ? shape[i] : 1;
  }
  return impl;
}

/// An impl of the shape, strides and dtype of another, without memory.
IntrusivePtr<TensorImpl> make_impl_like(const TensorImpl& other) {
  auto impl = make_intrusive<TensorImpl>();
  impl->numel = other.numel;
  impl->dtype = other.dtype;
  impl->contiguous = other.contiguous;
  impl->shape = other.shape;
  impl->strides = other.strides;
  return impl;
}

std::size_t bytes_of(const TensorImpl& impl) {
  std::size_t bytes = 0;
  LOCKSTEP_CHECK(
      !__builtin_mul_overflow(static_cast<std::size_t>(impl.numel), size_of(impl.dtype), &bytes),
      InvalidArgument, "shape ", impl.shape, " of ", impl.dtype, " exceeds any address space");
  return bytes;
}

/// Gives an impl memory of its own.
Tensor allocate(IntrusivePtr<TensorImpl> impl, Device device) {
  impl->storage = Storage::allocate(bytes_of(*impl), device);
  impl->data = impl->storage->data();
  return Tensor(std::move(impl));
}

/// True if an array of these strides has one element in each place of `numel(shape)` places.
bool is_dense(const Shape& shape, const Strides& strides) {
  Shape extents;
  Strides steps;  // sorted, extents of 1 left out
  for (int i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0) return true;
    if (shape[i] == 1) continue;
    int at = 0;
    while (at < steps.size() && steps[at] < strides[i]) ++at;
    steps.insert(at, strides[i]);
    extents.insert(at, shape[i]);
  }
  std::int64_t places = 1;
  for (int i = 0; i < steps.size(); ++i) {
    if (steps[i] != places) return false;
    places *= extents[i];
  }
  return true;
}

const backend::Backend& backend_of(const Tensor& tensor) { return backend::of(tensor.device()); }

}  // namespace

Tensor empty(const Shape& shape, TensorOptions options) {
  return allocate(make_contiguous_impl(shape, options.dtype), options.device);
}

Tensor empty_pinned(const Shape& shape, DType dtype) {
  auto impl = make_contiguous_impl(shape, dtype);
  impl->storage = Storage::allocate_pinned(bytes_of(*impl));
  impl->data = impl->storage->data();
  return Tensor(std::move(impl));
}

Tensor empty_strided(const Shape& shape, const Strides& strides, TensorOptions options) {
  LOCKSTEP_CHECK(shape.size() == strides.size() && is_dense(shape, strides), InvalidArgument,
                 "strides ", strides, " are not those of a dense array of shape ", shape,
                 " in any order of its dimensions");
  return allocate(make_impl(shape, strides, options.dtype), options.device);
}

Tensor empty_like(const Tensor& other) {
  if (other.is_contiguous() || other.is_channels_last())
    return allocate(make_impl_like(other.impl()), other.device());
  return empty(other.shape(), other.options());
}

Tensor full(const Shape& shape, Scalar value, TensorOptions options) {
  const TraceRange range("full");
  check_holds("full", options.dtype, value);
  Tensor result = empty(shape, options);
  fill_view(result, value);
  return result;
}

Tensor zeros(const Shape& shape, TensorOptions options) { return full(shape, 0, options); }
Tensor ones(const Shape& shape, TensorOptions options) { return full(shape, 1, options); }
Tensor scalar(Scalar value, TensorOptions options) { return full({}, value, options); }

Tensor zeros_like(const Tensor& other) { return full_like(other, 0); }
Tensor ones_like(const Tensor& other) { return full_like(other, 1); }
Tensor full_like(const Tensor& other, Scalar value) {
  const TraceRange range("full_like");
  check_holds("full_like", other.dtype(), value);
  Tensor result = empty_like(other);
  fill_view(result, value);
  return result;
}

Tensor arange(std::int64_t n, TensorOptions options) {
  return arange(0.0, static_cast<double>(n), 1.0, options);
}

Tensor arange(double start, double end, double step, TensorOptions options) {
  const TraceRange range("arange");
  LOCKSTEP_CHECK(step != 0 && std::isfinite(start) && std::isfinite(end) && std::isfinite(step),
                 InvalidArgument, "arange(", start, ", ", end, ", ", step,
                 "): bounds must be finite and the step not 0");
  LOCKSTEP_CHECK(is_floating(options.dtype) || std::max(std::abs(start), std::abs(end)) <= 0x1p53,
                 InvalidArgument, "arange(", start, ", ", end, ", ", step,
                 "): whole numbers past 2^53 are not counted exactly; add the start to arange(n)");
  LOCKSTEP_CHECK((end - start) / step >= 0, InvalidArgument, "arange(", start, ", ", end, ", ",
                 step, "): the step leads away from the end; give one of the other sign");
  const double count = std::ceil((end - start) / step);
  LOCKSTEP_CHECK(count <= 0x1p53, InvalidArgument, "arange(", start, ", ", end, ", ", step,
                 "): more than 2^53 numbers");
  if (count > 0) {
    check_holds("arange", options.dtype, std::trunc(start));
    check_holds("arange", options.dtype, std::trunc(start + (count - 1) * step));
  }
  Tensor result = empty({static_cast<std::int64_t>(count)}, options);
  backend_of(result).elementwise.arange({.out = result.view(), .start = start, .step = step},
                                        current_stream(options.device));
  return result;
}

Tensor linspace(double start, double end, std::int64_t steps, TensorOptions options) {
  const TraceRange range("linspace");
  LOCKSTEP_CHECK(
      steps >= 0 && std::isfinite(start) && std::isfinite(end) && std::isfinite(end - start),
      InvalidArgument, "linspace(", start, ", ", end, ", ", steps,
      "): bounds and their distance must be finite, and steps not negative");
  check_holds("linspace", options.dtype, start);
  check_holds("linspace", options.dtype, end);
  const double step = steps > 1 ? (end - start) / static_cast<double>(steps - 1) : 0.0;
  Tensor result = empty({steps}, options);
  backend_of(result).elementwise.arange({.out = result.view(), .start = start, .step = step},
                                        current_stream(options.device));
  // Rounded steps may miss the end.
  if (steps > 1) {
    std::byte* const first = static_cast<std::byte*>(result.data_ptr());
    fill_view(make_view(result, first + (result.nbytes() - size_of(options.dtype)), {}, {}), end);
  }
  return result;
}

Tensor eye(std::int64_t n, TensorOptions options) {
  const TraceRange range("eye");
  Tensor result = zeros({n, n}, options);
  if (n > 0) fill_view(make_view(result, result.data_ptr(), {n}, {n + 1}), 1);
  return result;
}

Tensor rand_like(const Tensor& other) { return rand(other.shape(), other.options()); }
Tensor randn_like(const Tensor& other) { return randn(other.shape(), other.options()); }

Tensor rand(const Shape& shape, TensorOptions options, Generator& generator) {
  const TraceRange range("rand");
  Tensor result = empty(shape, options);
  const StreamRef stream = current_stream(options.device);
  const RandomDraw draw(generator, stream);
  backend_of(result).random.uniform(
      {.out = result.view(), .low = 0.0, .high = 1.0, .random = draw.place()}, stream);
  return result;
}

Tensor randn(const Shape& shape, TensorOptions options, Generator& generator) {
  const TraceRange range("randn");
  Tensor result = empty(shape, options);
  const StreamRef stream = current_stream(options.device);
  const RandomDraw draw(generator, stream);
  backend_of(result).random.normal(
      {.out = result.view(), .mean = 0.0, .deviation = 1.0, .random = draw.place()}, stream);
  return result;
}

Tensor from_blob(void* data, const Shape& shape, TensorOptions options,
                 IntrusivePtr<RefCounted> owner) {
  refuse_in_captured_step("memory of the program becomes a tensor", "make it before the step",
                          options.device);
  LOCKSTEP_CHECK(reinterpret_cast<std::uintptr_t>(data) % size_of(options.dtype) == 0,
                 InvalidArgument, "from_blob: ", data, " is no address of ", options.dtype,
                 ", which has to be a multiple of ", size_of(options.dtype));
  auto impl = make_contiguous_impl(shape, options.dtype);
  impl->storage = Storage::borrow(data, bytes_of(*impl), options.device, std::move(owner));
  impl->data = data;
  return Tensor(std::move(impl));
}

template <class T>
Tensor from_span(std::span<const T> values, const Shape& shape, Device device) {
  LOCKSTEP_CHECK(static_cast<std::int64_t>(values.size()) == numel(shape), InvalidArgument,
                 values.size(), " values do not fill shape ", shape);
  refuse_in_captured_step("a tensor is made of values of the host", "make it before the step",
                          device);
  Tensor result = empty(shape, {dtype_of<T>, device});
  const StreamRef stream = current_stream(device);
  device_runtime(device.type).copy(result.data_ptr(), values.data(), values.size_bytes(), stream);
  synchronize(stream);
  return result;
}
template Tensor from_span(std::span<const double>, const Shape&, Device);
template Tensor from_span(std::span<const float>, const Shape&, Device);
template Tensor from_span(std::span<const BFloat16>, const Shape&, Device);
template Tensor from_span(std::span<const Half>, const Shape&, Device);
template Tensor from_span(std::span<const std::int64_t>, const Shape&, Device);
template Tensor from_span(std::span<const std::int32_t>, const Shape&, Device);
template Tensor from_span(std::span<const std::uint8_t>, const Shape&, Device);
template Tensor from_span(std::span<const bool>, const Shape&, Device);

Tensor make_view(const Tensor& base, void* data, const Shape& shape, const Strides& strides) {
  auto impl = make_impl(shape, strides, base.dtype());
  impl->storage = base.impl().storage;
  impl->data = data;
  impl->is_view = true;
  return Tensor(std::move(impl));
}

Tensor make_alias(const Tensor& base) {
  auto impl = make_impl_like(base.impl());
  impl->data = base.data_ptr();  // first: a gate may exchange the array
  impl->storage = base.impl().storage;
  impl->is_view = true;
  return Tensor(std::move(impl));
}

}  // namespace lockstep
