#pragma once

#include <concepts>
#include <cstdint>

#include "lockstep/core/device.hpp"
#include "lockstep/core/dtype.hpp"
#include "lockstep/core/shape.hpp"

/// @file
/// What tensors are created with, and how their dimensions are given.

namespace lockstep {

/// Where and of what type a tensor is created.
struct TensorOptions {
  DType dtype = DType::f32;
  Device device = cpu;
};

/// A number of a dimension, where several could be given in braces.
template <class T>
concept DimIndex = std::integral<T> && !std::same_as<T, bool>;
/// The list of one dimension.
inline Dims only(DimIndex auto dim) { return {static_cast<std::int64_t>(dim)}; }

}  // namespace lockstep
