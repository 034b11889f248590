#pragma once

#include <cstdint>
#include <span>

#include "lockstep/core/dtype.hpp"

/// @file
/// What collectives see of memory: a pointer to contiguous elements on the communicator's device.

namespace lockstep::comm {

/// Contiguous elements that a collective may write. The memory belongs to the caller and must stay
/// valid, and untouched, until the operation's Work is complete.
struct Buffer {
  void* data = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::f32;

  Buffer() = default;
  /// `count` elements of `dtype` from `pointer` on.
  Buffer(void* pointer, std::int64_t elements, DType type)
      : data(pointer), count(elements), dtype(type) {}
  /// All elements of a range.
  template <class T>
  explicit Buffer(std::span<T> values)
      : Buffer(values.data(), static_cast<std::int64_t>(values.size()), dtype_of<T>) {}

  /// Size in bytes.
  std::size_t bytes() const { return static_cast<std::size_t>(count) * size_of(dtype); }
};

/// Contiguous elements that a collective only reads; see Buffer.
struct ConstBuffer {
  const void* data = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::f32;

  ConstBuffer() = default;
  /// `count` elements of `dtype` from `pointer` on.
  ConstBuffer(const void* pointer, std::int64_t elements, DType type)
      : data(pointer), count(elements), dtype(type) {}
  /// The same elements, read-only.
  ConstBuffer(const Buffer& buffer)  // NOLINT(google-explicit-constructor)
      : ConstBuffer(buffer.data, buffer.count, buffer.dtype) {}
  /// All elements of a range.
  template <class T>
  explicit ConstBuffer(std::span<T> values)
      : ConstBuffer(values.data(), static_cast<std::int64_t>(values.size()),
                    dtype_of<std::remove_const_t<T>>) {}

  /// Size in bytes.
  std::size_t bytes() const { return static_cast<std::size_t>(count) * size_of(dtype); }
};

}  // namespace lockstep::comm
