#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <span>
#include <string_view>

#include "lockstep/core/error.hpp"
#include "lockstep/core/macros.hpp"

/// @file
/// Extents and strides of tensors, held inline (no allocation), and checked arithmetic over them.

namespace lockstep {

/// Largest number of dimensions of a tensor.
inline constexpr int max_rank = 8;

/// A short list of 64-bit integers held inline: the extents or the strides of a tensor.
class Dims {
 public:
  constexpr Dims() = default;
  /// @throws InvalidArgument for more than `max_rank` values.
  constexpr Dims(std::initializer_list<std::int64_t> values)
      : Dims(std::span<const std::int64_t>(values.begin(), values.size())) {}
  /// @throws InvalidArgument for more than `max_rank` values.
  constexpr explicit Dims(std::span<const std::int64_t> values) {
    if (values.size() > max_rank) [[unlikely]]
      refuse(values.size());
    for (const auto value : values) values_[size_++] = value;
  }
  /// `count` copies of `value`.
  static constexpr Dims filled(int count, std::int64_t value) {
    Dims dims;
    for (int i = 0; i < count; ++i) dims.push_back(value);
    return dims;
  }

  constexpr int size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr std::int64_t operator[](int i) const { return values_[static_cast<std::size_t>(i)]; }
  constexpr std::int64_t& operator[](int i) { return values_[static_cast<std::size_t>(i)]; }
  constexpr const std::int64_t* begin() const { return values_.data(); }
  constexpr const std::int64_t* end() const { return values_.data() + size_; }
  constexpr std::int64_t* begin() { return values_.data(); }
  constexpr std::int64_t* end() { return values_.data() + size_; }
  constexpr std::int64_t back() const { return values_[static_cast<std::size_t>(size_ - 1)]; }
  constexpr std::int64_t& back() { return values_[static_cast<std::size_t>(size_ - 1)]; }

  /// Appends a value. @throws InvalidArgument past `max_rank`.
  constexpr void push_back(std::int64_t value) {
    if (size_ == max_rank) [[unlikely]]
      refuse(max_rank + 1);
    values_[static_cast<std::size_t>(size_++)] = value;
  }
  /// Inserts a value before position `at` (0 to size).
  constexpr void insert(int at, std::int64_t value) {
    push_back(value);
    for (int i = size_ - 1; i > at; --i) (*this)[i] = (*this)[i - 1];
    (*this)[at] = value;
  }
  /// Removes the value at position `at`.
  constexpr void erase(int at) {
    for (int i = at; i + 1 < size_; ++i) (*this)[i] = (*this)[i + 1];
    --size_;
  }

  friend constexpr bool operator==(const Dims& a, const Dims& b) {
    if (a.size_ != b.size_) return false;
    for (int i = 0; i < a.size_; ++i)
      if (a[i] != b[i]) return false;
    return true;
  }

 private:
  [[noreturn]] LOCKSTEP_COLD static void refuse(std::size_t size) {
    LOCKSTEP_THROW(InvalidArgument, "a tensor has at most ", max_rank, " dimensions, got ", size);
  }

  std::array<std::int64_t, max_rank> values_{};
  int size_ = 0;
};

/// Extents of a tensor, outermost first. Empty for a scalar.
using Shape = Dims;
/// Distance in elements between neighbours along each dimension.
using Strides = Dims;

/// Writes "[2, 3]".
std::ostream& operator<<(std::ostream& out, const Dims& dims);

/// Number of elements. @throws InvalidArgument for negative extents or a product past 2^63 - 1.
std::int64_t numel(const Shape& shape);

/// Row-major strides of a shape.
Strides contiguous_strides(const Shape& shape);

/// Strides of an [N, C, H, W] shape whose memory is ordered N, H, W, C.
Strides channels_last_strides(const Shape& shape);

/// True if elements follow one another in row-major order (extents of 1 are ignored).
bool is_contiguous(const Shape& shape, const Strides& strides);

/// Resolves a possibly negative dimension. @throws InvalidArgument outside [-rank, rank).
int wrap_dim(std::int64_t dim, int rank);

/// The common shape of two operands by NumPy's rules. @param op whom an error names.
/// @throws InvalidArgument where extents differ and neither is 1.
Shape broadcast_shapes(const Shape& a, const Shape& b, std::string_view op = {});

/// Strides that repeat a tensor over a larger shape: 0 where it is broadcast.
/// @throws InvalidArgument where the shape cannot be expanded to the target.
Strides broadcast_strides(const Shape& from, const Strides& strides, const Shape& to);

}  // namespace lockstep
