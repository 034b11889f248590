#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>

#include "lockstep/core/array_view.hpp"

/// @file
/// How a grid walks several strided arrays of one shape.

namespace lockstep::cuda_kernels {

/// Division by a constant known at launch: Granlund and Montgomery, "Division by invariant integers
/// using multiplication" (PLDI 1994). Right for dividends below 2^31.
struct Divider {
  std::uint32_t divisor = 1;
  std::uint32_t magic = 1;
  std::uint32_t shift = 0;

  Divider() = default;
  explicit Divider(std::uint32_t by) : divisor(by) {
    shift = static_cast<std::uint32_t>(std::bit_width(by - 1));
    const std::uint64_t one = 1;
    magic = static_cast<std::uint32_t>((one << 32) * ((one << shift) - by) / by + 1);
  }
  LOCKSTEP_HD std::uint32_t divide(std::uint32_t dividend) const {
    const auto high =
        static_cast<std::uint32_t>(static_cast<std::uint64_t>(dividend) * magic >> 32);
    return (high + dividend) >> shift;
  }
};

/// Offsets, in elements, of one index into each of K arrays.
template <int K>
struct Offsets {
  std::int64_t of[K];
};

/// Shape and strides of K arrays, innermost dimension first, neighbouring dimensions merged.
template <int K>
struct Layout {
  std::uint32_t count = 1;  ///< elements; a launch covers fewer than 2^31
  std::int32_t rank = 0;
  bool vectorised = false;  ///< set by `can_vectorise`
  Divider extents[max_rank];
  std::int64_t strides[K][max_rank] = {};

  LOCKSTEP_HD Offsets<K> offsets(std::uint32_t index) const {
    Offsets<K> result{};
    for (int d = 0; d + 1 < rank; ++d) {
      const std::uint32_t quotient = extents[d].divide(index);
      const auto position = static_cast<std::int64_t>(index - quotient * extents[d].divisor);
      for (int k = 0; k < K; ++k) result.of[k] += position * strides[k][d];
      index = quotient;
    }
    if (rank > 0)
      for (int k = 0; k < K; ++k) result.of[k] += index * strides[k][rank - 1];
    return result;
  }
};

namespace detail {

/// One dimension of K arrays.
template <int K>
struct Dimension {
  std::int64_t extent;
  std::array<std::int64_t, K> strides;

  bool continues(const Dimension& inner) const {
    for (int k = 0; k < K; ++k)
      if (strides[k] != inner.strides[k] * inner.extent) return false;
    return true;
  }
};

}  // namespace detail

/// The dimensions of K arrays of one shape, ready to be cut into launches.
template <int K>
class ArraySet {
 public:
  /// In which order a launch numbers the elements.
  enum class Order : unsigned char { memory_of_first, row_major };

  /// @param views K arrays of one shape.
  explicit ArraySet(const std::array<const ArrayView*, K>& views,
                    Order order = Order::memory_of_first) {
    for (int k = 0; k < K; ++k) {
      data[k] = static_cast<std::byte*>(views[k]->data);
      item_size[k] = static_cast<std::int64_t>(size_of(views[k]->dtype));
    }
    for (int d = views[0]->rank() - 1; d >= 0; --d) {
      detail::Dimension<K> dimension{views[0]->shape[d], {}};
      for (int k = 0; k < K; ++k) dimension.strides[k] = views[k]->strides[d];
      if (dimension.extent != 1) dims[static_cast<std::size_t>(rank++)] = dimension;
    }
    if (order == Order::memory_of_first)
      std::stable_sort(dims.begin(), dims.begin() + rank, [](const auto& a, const auto& b) {
        return std::abs(a.strides[0]) < std::abs(b.strides[0]);
      });
    merge();
  }

  std::int64_t numel() const {
    std::int64_t product = 1;
    for (int d = 0; d < rank; ++d) product *= dims[d].extent;
    return product;
  }

  /// Calls `visit` with parts of fewer than 2^31 elements, cut along the outermost dimension that
  /// has more than one place: at a multiple of 16 places, if it has twice as many, so that all
  /// parts begin at whole vectors.
  template <class Visitor>
  void for_each_part(Visitor&& visit) const {
    constexpr std::int64_t most = std::int64_t{1} << 30;
    if (numel() <= most) return visit(*this);
    ArraySet first = *this;
    ArraySet second = *this;
    int d = rank - 1;
    while (dims[d].extent == 1) --d;
    const auto& outer = dims[d];
    std::int64_t cut = outer.extent / 2;
    if (cut >= 16) cut -= cut % 16;
    first.dims[d].extent = cut;
    second.dims[d].extent = outer.extent - cut;
    for (int k = 0; k < K; ++k) second.data[k] += cut * outer.strides[k] * item_size[k];
    first.for_each_part(visit);
    second.for_each_part(visit);
  }

  /// True if every thread can move `lanes` elements at once: inner strides 1 (or 0: repeated), all
  /// else aligned.
  bool can_vectorise(int lanes) const {
    if (rank == 0 || dims[0].strides[0] != 1) return false;
    if (rank > 1 && dims[0].extent % lanes != 0) return false;
    for (int k = 0; k < K; ++k) {
      if (dims[0].strides[k] == 0) continue;
      if (dims[0].strides[k] != 1) return false;
      if (reinterpret_cast<std::uintptr_t>(data[k]) % (lanes * item_size[k]) != 0) return false;
      for (int d = 1; d < rank; ++d)
        if (dims[d].strides[k] % lanes != 0) return false;
    }
    return true;
  }

  /// What the kernel gets.
  Layout<K> layout(int lanes) const {
    Layout<K> result;
    result.count = static_cast<std::uint32_t>(numel());
    result.rank = rank;
    result.vectorised = can_vectorise(lanes);
    for (int d = 0; d < rank; ++d) {
      result.extents[d] = Divider(static_cast<std::uint32_t>(dims[d].extent));
      for (int k = 0; k < K; ++k) result.strides[k][d] = dims[d].strides[k];
    }
    return result;
  }

  std::array<std::byte*, K> data{};
  std::array<std::int64_t, K> item_size{};
  int rank = 0;
  std::array<detail::Dimension<K>, max_rank> dims{};

 private:
  void merge() {
    int kept = 0;
    for (int d = 0; d < rank; ++d) {
      if (kept > 0 && dims[d].continues(dims[kept - 1]))
        dims[kept - 1].extent *= dims[d].extent;
      else
        dims[kept++] = dims[d];
    }
    rank = kept;
  }
};

}  // namespace lockstep::cuda_kernels
