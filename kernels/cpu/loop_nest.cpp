#include "cpu/loop_nest.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace lockstep::cpu_kernels {
namespace {

/// True if dimension a should lie outside of b: by the first operand that tells them apart.
bool goes_outside(const LoopNest& nest, std::size_t a, std::size_t b) {
  for (std::size_t k = 0; k < static_cast<std::size_t>(nest.operands); ++k) {
    const auto x = std::abs(nest.stride[k][a]), y = std::abs(nest.stride[k][b]);
    if (x != y && x != 0 && y != 0) return x > y;
  }
  return a < b;
}

void swap_dimensions(LoopNest& nest, std::size_t a, std::size_t b) {
  std::swap(nest.extent[a], nest.extent[b]);
  for (auto& strides : nest.stride) std::swap(strides[a], strides[b]);
}

/// Insertion sort: ranks are small, and the order is mostly right already.
void sort_dimensions(LoopNest& nest) {
  for (int i = 1; i < nest.rank; ++i)
    for (auto j = static_cast<std::size_t>(i); j > 0 && !goes_outside(nest, j - 1, j); --j)
      swap_dimensions(nest, j - 1, j);
}

bool can_merge(const LoopNest& nest, std::size_t outer, std::size_t inner) {
  for (std::size_t k = 0; k < static_cast<std::size_t>(nest.operands); ++k)
    if (nest.stride[k][outer] != nest.stride[k][inner] * nest.extent[inner]) return false;
  return true;
}

void merge_dimensions(LoopNest& nest) {
  std::size_t last = 0;
  for (std::size_t d = 1; d < static_cast<std::size_t>(nest.rank); ++d) {
    if (can_merge(nest, last, d))
      nest.extent[last] *= nest.extent[d];
    else
      nest.extent[++last] = nest.extent[d];
    for (auto& strides : nest.stride) strides[last] = strides[d];
  }
  nest.rank = static_cast<int>(last) + 1;
}

}  // namespace

bool LoopNest::is_linear(int operand) const {
  std::int64_t step = 1;
  for (auto d = static_cast<std::size_t>(rank); d-- > 0;) {
    if (stride[static_cast<std::size_t>(operand)][d] != step && extent[d] != 1) return false;
    step *= extent[d];
  }
  return true;
}

bool LoopNest::is_scalar(int operand) const {
  for (std::size_t d = 0; d < static_cast<std::size_t>(rank); ++d)
    if (stride[static_cast<std::size_t>(operand)][d] != 0 && extent[d] != 1) return false;
  return true;
}

LoopNest make_loop_nest(const Shape& shape, std::initializer_list<const Strides*> strides,
                        bool reorder) {
  LoopNest nest;
  nest.operands = static_cast<int>(strides.size());
  for (int d = 0; d < shape.size(); ++d) {
    nest.total *= shape[d];
    if (shape[d] == 1) continue;
    const auto at = static_cast<std::size_t>(nest.rank++);
    nest.extent[at] = shape[d];
    for (std::size_t k = 0; k < strides.size(); ++k) nest.stride[k][at] = (*strides.begin()[k])[d];
  }
  if (nest.rank == 0) {
    nest.rank = 1;
    nest.extent[0] = 1;
    for (auto& each : nest.stride) each[0] = 1;
    return nest;
  }
  if (reorder) sort_dimensions(nest);
  merge_dimensions(nest);
  return nest;
}

void Cursor::seek(const LoopNest& nest, std::int64_t position) {
  offset = {};
  for (auto d = static_cast<std::size_t>(nest.rank); d-- > 0;) {
    index[d] = position % nest.extent[d];
    position /= nest.extent[d];
    for (std::size_t k = 0; k < static_cast<std::size_t>(nest.operands); ++k)
      offset[k] += index[d] * nest.stride[k][d];
  }
}

void Cursor::advance(const LoopNest& nest, std::int64_t count) {
  advance_in(nest, static_cast<std::size_t>(nest.rank - 1), count);
}

std::int64_t Cursor::whole_rows(const LoopNest& nest, std::int64_t count) const {
  const auto last = static_cast<std::size_t>(nest.rank - 1);
  if (last == 0 || index[last] != 0 || count < nest.inner()) return 0;
  return std::min(count / nest.inner(), nest.extent[last - 1] - index[last - 1]);
}

void Cursor::advance_rows(const LoopNest& nest, std::int64_t rows) {
  advance_in(nest, static_cast<std::size_t>(nest.rank - 2), rows);
}

void Cursor::advance_in(const LoopNest& nest, std::size_t d, std::int64_t count) {
  const auto operands = static_cast<std::size_t>(nest.operands);
  index[d] += count;
  for (std::size_t k = 0; k < operands; ++k) offset[k] += count * nest.stride[k][d];
  for (; d > 0 && index[d] == nest.extent[d]; --d) {
    index[d] = 0;
    ++index[d - 1];
    for (std::size_t k = 0; k < operands; ++k)
      offset[k] += nest.stride[k][d - 1] - nest.extent[d] * nest.stride[k][d];
  }
}

}  // namespace lockstep::cpu_kernels
