#pragma once

#include <cstdint>

#include "lockstep/core/dtype.hpp"
#include "lockstep/core/shape.hpp"

/// @file
/// What kernels see of a tensor: a pointer, a shape, strides and a dtype.

namespace lockstep {

/// Non-owning, strided view of an array in some device's memory.
struct ArrayView {
  void* data = nullptr;
  DType dtype = DType::f32;
  Shape shape;
  Strides strides;

  /// The first element as `T*`; the dtype is not checked.
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
  /// Number of dimensions.
  int rank() const { return shape.size(); }
  /// Number of elements.
  std::int64_t numel() const { return lockstep::numel(shape); }
  /// True if elements follow one another in row-major order.
  bool is_contiguous() const { return lockstep::is_contiguous(shape, strides); }
  /// False for a default-constructed view: an optional operand that is absent.
  explicit operator bool() const { return data != nullptr; }
};

}  // namespace lockstep
