#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/core/shape.hpp"
#include "support/random_cases.hpp"

/// @file
/// Index arithmetic of naive loops: slow, and plain to see.

namespace lockstep::testing {

/// The index along each dimension of the element at a row-major position.
inline Dims index_of(std::int64_t position, const Shape& shape) {
  Dims index = shape;
  for (int d = shape.size() - 1; d >= 0; --d) {
    index[d] = position % shape[d];
    position /= shape[d];
  }
  return index;
}

/// The row-major position of an element.
inline std::int64_t position_of(const Dims& index, const Shape& shape) {
  std::int64_t position = 0;
  for (int d = 0; d < shape.size(); ++d) position = position * shape[d] + index[d];
  return position;
}

/// The position in an operand of shape `from` that is broadcast to `index` of a larger shape.
inline std::int64_t broadcast_position(const Dims& index, const Shape& from) {
  Dims own = from;
  const int lead = index.size() - from.size();
  for (int d = 0; d < from.size(); ++d) own[d] = from[d] == 1 ? 0 : index[lead + d];
  return position_of(own, from);
}

inline double at(const Values& values, std::int64_t position) {
  return values[static_cast<std::size_t>(position)];
}

/// What is right to the last bit: no error allowed.
inline Expected exactly(const Values& values) {
  Expected expected;
  expected.values = values;
  expected.magnitudes = Values(values.size(), 0.0);
  return expected;
}

/// True for the dtypes whose sums and functions are computed in f32 and then rounded.
inline bool is_16_bit(DType dtype) { return dtype == DType::bf16 || dtype == DType::f16; }

/// The rounding of the type that arithmetic on a dtype runs in.
inline double held_rounding(DType dtype) {
  return test::rounding(dtype == DType::f64 ? DType::f64 : DType::f32);
}

/// Some dimensions of a shape, each at most once; none stands for all.
inline Dims some_dims(RandomCase& c, int rank) {
  Dims dims;
  for (int d = 0; d < rank; ++d)
    if (c.chance(0.5)) dims.push_back(c.chance(0.5) ? d : d - rank);
  return dims;
}

/// The shape with extent 1 in the given dimensions, or in all if there are none.
inline Shape kept_shape(Shape shape, const Dims& dims) {
  for (int d = 0; d < shape.size(); ++d)
    if (dims.empty()) shape[d] = 1;
  for (const auto d : dims) shape[static_cast<int>(d < 0 ? d + shape.size() : d)] = 1;
  return shape;
}

/// The shape without the given dimensions, or without any if there are none.
inline Shape dropped_shape(const Shape& shape, const Dims& dims) {
  Shape left;
  for (int d = 0; d < shape.size() && !dims.empty(); ++d) {
    bool dropped = false;
    for (const auto each : dims) dropped |= each == d || each + shape.size() == d;
    if (!dropped) left.push_back(shape[d]);
  }
  return left;
}

}  // namespace lockstep::testing
