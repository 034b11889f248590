#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "lockstep/core/array_view.hpp"
#include "lockstep/memory/allocator.hpp"
#include "lockstep/runtime/device_runtime.hpp"

/// @file
/// Arrays for tests of kernels: values are doubles on the host, whatever dtype and memory order the
/// array has on its device.

namespace lockstep::test {

/// Row-major values of an array.
using Values = std::vector<double>;

/// `count` values uniform in [low, high), the same for the same seed.
inline Values random_values(std::int64_t count, unsigned seed, double low = -1.0,
                            double high = 1.0) {
  std::mt19937_64 engine(seed);
  std::uniform_real_distribution<double> uniform(low, high);
  Values values(static_cast<std::size_t>(count));
  for (auto& value : values) value = uniform(engine);
  return values;
}

/// Calls `visit(row_major_index, memory_offset)` for every element.
template <class Visit>
void for_each_element(const Shape& shape, const Strides& strides, Visit&& visit) {
  const std::int64_t total = numel(shape);
  for (std::int64_t i = 0; i < total; ++i) {
    std::int64_t rest = i, offset = 0;
    for (int d = shape.size() - 1; d >= 0; --d) {
      offset += rest % shape[d] * strides[d];
      rest /= shape[d];
    }
    visit(static_cast<std::size_t>(i), static_cast<std::size_t>(offset));
  }
}

/// An array on a device with any non-negative strides.
class DeviceArray {
 public:
  DeviceArray(DType dtype, const Shape& shape, const Strides& strides, Device device = cpu)
      : device_(device) {
    std::int64_t last = 0;
    for (int d = 0; d < shape.size(); ++d) last += (shape[d] - 1) * strides[d];
    elements_ = numel(shape) == 0 ? 0 : static_cast<std::size_t>(last + 1);
    MemoryBlock* block =
        device_allocator(device).allocate(elements_ * size_of(dtype), current_stream(device));
    block_ = {block, [device](MemoryBlock* b) { device_allocator(device).deallocate(b); }};
    view_ = {block ? block->data : nullptr, dtype, shape, strides};
    // `get` reads what lies between the elements, too.
    if (elements_ > static_cast<std::size_t>(numel(shape)))
      set(Values(static_cast<std::size_t>(numel(shape))));
  }
  DeviceArray(DType dtype, const Shape& shape, Device device = cpu)
      : DeviceArray(dtype, shape, contiguous_strides(shape), device) {}

  /// What kernels take.
  const ArrayView& view() const { return view_; }
  operator const ArrayView&() const { return view_; }

  /// Stores row-major values, rounded to the dtype.
  DeviceArray& set(const Values& values) & {
    dispatch_all(view_.dtype, "set", [&](auto tag) {
      using T = typename decltype(tag)::type;
      const std::unique_ptr<T[]> host(new T[elements_]());
      for_each_element(view_.shape, view_.strides, [&](std::size_t i, std::size_t offset) {
        if constexpr (is_floating_type<T> && !std::is_same_v<T, double>)
          host[offset] = T(static_cast<float>(values[i]));
        else
          host[offset] = static_cast<T>(values[i]);
      });
      transfer(view_.data, host.get());
    });
    return *this;
  }
  DeviceArray set(const Values& values) && { return std::move(this->set(values)); }
  /// Stores uniform values in [low, high).
  DeviceArray& randomize(unsigned seed, double low = -1.0, double high = 1.0) & {
    return set(random_values(view_.numel(), seed, low, high));
  }
  DeviceArray randomize(unsigned seed, double low = -1.0, double high = 1.0) && {
    return std::move(this->randomize(seed, low, high));
  }
  /// The values in row-major order.
  Values get() const {
    Values values(static_cast<std::size_t>(view_.numel()));
    dispatch_all(view_.dtype, "get", [&](auto tag) {
      using T = typename decltype(tag)::type;
      const std::unique_ptr<T[]> host(new T[elements_]());
      transfer(host.get(), view_.data);
      for_each_element(view_.shape, view_.strides, [&](std::size_t i, std::size_t offset) {
        if constexpr (is_floating_type<T> && !std::is_same_v<T, double>)
          values[i] = static_cast<float>(host[offset]);
        else
          values[i] = static_cast<double>(host[offset]);
      });
    });
    return values;
  }

 private:
  void transfer(void* to, const void* from) const {
    const StreamRef stream = current_stream(device_);
    device_runtime(device_.type).copy(to, from, elements_ * size_of(view_.dtype), stream);
    synchronize(stream);
  }

  Device device_;
  std::size_t elements_ = 0;
  std::unique_ptr<MemoryBlock, std::function<void(MemoryBlock*)>> block_;
  ArrayView view_;
};

}  // namespace lockstep::test
