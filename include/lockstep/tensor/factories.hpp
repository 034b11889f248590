#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <type_traits>
#include <vector>

#include "lockstep/core/random.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// Functions that create tensors.

namespace lockstep {

/// What else than TensorOptions may follow a shape: a dtype, on the CPU, or a device, in f32.
template <class T>
concept TensorOption = std::same_as<T, DType> || std::same_as<T, Device>;

/// The options that one of them stands for.
constexpr TensorOptions options_with(DType dtype) { return {.dtype = dtype}; }
constexpr TensorOptions options_with(Device device) { return {.device = device}; }

/// Uninitialised, contiguous. @throws InvalidArgument for a bad shape, OutOfMemory.
Tensor empty(const Shape& shape, TensorOptions options = {});
/// Uninitialised, contiguous, in page-locked host memory.
/// @throws as `empty`, and Unsupported without a GPU.
Tensor empty_pinned(const Shape& shape, DType dtype = DType::f32);
/// Uninitialised, with given strides, which must be a permutation of dense ones.
Tensor empty_strided(const Shape& shape, const Strides& strides, TensorOptions options = {});
/// Uninitialised, of the shape, dtype, device and (where channels-last) memory order of another.
Tensor empty_like(const Tensor& other);
/// All elements equal to `value`. @throws InvalidArgument for one that an integer dtype cannot
/// hold.
Tensor full(const Shape& shape, Scalar value, TensorOptions options = {});
/// All elements 0.
Tensor zeros(const Shape& shape, TensorOptions options = {});
/// All elements 1.
Tensor ones(const Shape& shape, TensorOptions options = {});
/// All elements 0; shape, dtype, device and memory order of another tensor.
Tensor zeros_like(const Tensor& other);
/// All elements 1, else as `zeros_like`.
Tensor ones_like(const Tensor& other);
/// All elements equal to `value`, else as `zeros_like`.
Tensor full_like(const Tensor& other, Scalar value);
/// 0, 1, ... n - 1. @throws InvalidArgument for a negative n.
Tensor arange(std::int64_t n, TensorOptions options = {.dtype = DType::i64});
/// start, start + step, ... below end (above it, for a step below 0).
/// @throws InvalidArgument for numbers past an integer dtype's range, or a step away from the end.
Tensor arange(double start, double end, double step = 1.0, TensorOptions options = {});
/// The same of whole numbers (i64).
template <std::integral Start, std::integral End, std::integral Step = int>
Tensor arange(Start start, End end, Step step = 1) {
  return arange(static_cast<double>(start), static_cast<double>(end), static_cast<double>(step),
                {.dtype = DType::i64});
}
/// `steps` numbers at equal distances, from `start` to `end`, both included.
/// @throws InvalidArgument for bounds that an integer dtype cannot hold, or so far apart that f64
/// has no number for their distance.
Tensor linspace(double start, double end, std::int64_t steps, TensorOptions options = {});
/// The unit matrix of n rows.
Tensor eye(std::int64_t n, TensorOptions options = {});
/// Uniform over [0, 1), drawn from the generator.
Tensor rand(const Shape& shape, TensorOptions options = {},
            Generator& generator = default_generator());
/// Standard normal, drawn from the generator.
Tensor randn(const Shape& shape, TensorOptions options = {},
             Generator& generator = default_generator());
/// Uniform over [0, 1), of the shape, dtype and device of another tensor.
Tensor rand_like(const Tensor& other);
/// Standard normal, of the shape, dtype and device of another tensor.
Tensor randn_like(const Tensor& other);
/// A scalar: no dimensions, one element. @throws as `full`.
Tensor scalar(Scalar value, TensorOptions options = {});

/// Uninitialised, of a dtype or on a device.
Tensor empty(const Shape& shape, TensorOption auto option) {
  return empty(shape, options_with(option));
}
/// All elements equal to `value`, of a dtype or on a device.
Tensor full(const Shape& shape, Scalar value, TensorOption auto option) {
  return full(shape, value, options_with(option));
}
/// All elements 0, of a dtype or on a device.
Tensor zeros(const Shape& shape, TensorOption auto option) {
  return zeros(shape, options_with(option));
}
/// All elements 1, of a dtype or on a device.
Tensor ones(const Shape& shape, TensorOption auto option) {
  return ones(shape, options_with(option));
}
/// Uniform over [0, 1), of a dtype or on a device.
Tensor rand(const Shape& shape, TensorOption auto option) {
  return rand(shape, options_with(option));
}
/// Standard normal, of a dtype or on a device.
Tensor randn(const Shape& shape, TensorOption auto option) {
  return randn(shape, options_with(option));
}

/// A view of memory that the caller keeps alive, contiguous; or that `owner` keeps alive.
/// @throws InvalidArgument for an address that is not a multiple of the element's size.
Tensor from_blob(void* data, const Shape& shape, TensorOptions options = {},
                 IntrusivePtr<RefCounted> owner = {});
/// A copy of host values. @throws InvalidArgument if their number is not the shape's.
template <class T>
Tensor from_span(std::span<const T> values, const Shape& shape, Device device = cpu);
/// A copy of host values, in one dimension.
template <class T>
Tensor tensor(const std::vector<T>& values, Device device = cpu) {
  return from_span<T>(values, {static_cast<std::int64_t>(values.size())}, device);
}
/// A copy of host values, in one dimension.
template <class T>
Tensor tensor(std::initializer_list<T> values, Device device = cpu) {
  return from_span<T>({values.begin(), values.size()}, {static_cast<std::int64_t>(values.size())},
                      device);
}

/// One host value: no dimensions. Of the value's own type, as all that `tensor` makes.
template <class T>
requires std::is_arithmetic_v<T> Tensor tensor(T value, Device device = cpu) {
  return from_span<T>({&value, 1}, {}, device);
}
/// A copy of host values in rows. @throws InvalidArgument for rows that differ in length.
template <class T>
requires(!std::same_as<T, bool>)  // vectors of bool have no memory to copy from
    Tensor tensor(std::initializer_list<std::initializer_list<T>> rows, Device device = cpu) {
  std::vector<T> values;
  for (const auto& row : rows) values.insert(values.end(), row.begin(), row.end());
  const std::size_t columns = rows.size() ? rows.begin()->size() : 0;
  for (const auto& row : rows)
    LOCKSTEP_CHECK(row.size() == columns, InvalidArgument, "tensor: a row of ", row.size(),
                   " values beside one of ", columns, "; all need as many");
  return from_span<T>(
      values, {static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(columns)}, device);
}

/// A window on another tensor's storage: the building block of view ops. Not recorded.
Tensor make_view(const Tensor& base, void* data, const Shape& shape, const Strides& strides);
/// The whole of another tensor's window, as a tensor of its own. Not recorded.
Tensor make_alias(const Tensor& base);

}  // namespace lockstep
