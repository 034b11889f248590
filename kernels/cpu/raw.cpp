#include "cpu/raw.hpp"

#include <algorithm>
#include <cstring>

namespace lockstep::cpu_kernels {
namespace {

/// Calls `visit` with a zero of the unsigned type of that size.
template <class Visitor>
auto dispatch_size(std::size_t size, Visitor visit) {
  switch (size) {
    case 1: return visit(std::uint8_t{});
    case 2: return visit(std::uint16_t{});
    case 4: return visit(std::uint32_t{});
    default: return visit(std::uint64_t{});
  }
}

template <class T>
void copy_typed(T* to, std::int64_t to_stride, const T* from, std::int64_t from_stride,
                std::int64_t n) {
  if (to_stride == 1 && from_stride == 1) {
    if (n > 0) std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(T));
  } else if (to_stride == 1 && from_stride == 0) {
    std::fill_n(to, n, *from);
  } else if (to_stride == 1) {
    for (std::int64_t i = 0; i < n; ++i) to[i] = from[i * from_stride];
  } else {
    for (std::int64_t i = 0; i < n; ++i) to[i * to_stride] = from[i * from_stride];
  }
}

/// Square blocks keep both sides' cache lines alive until they are used up.
template <class T>
void transpose_typed(T* to, std::int64_t to_row_stride, const T* from,
                     std::int64_t from_column_stride, std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t block = 16;
  for (std::int64_t r0 = 0; r0 < rows; r0 += block) {
    const std::int64_t r1 = std::min(rows, r0 + block);
    for (std::int64_t c0 = 0; c0 < columns; c0 += block) {
      const std::int64_t c1 = std::min(columns, c0 + block);
      for (std::int64_t r = r0; r < r1; ++r)
        for (std::int64_t c = c0; c < c1; ++c)
          to[r * to_row_stride + c] = from[r + c * from_column_stride];
    }
  }
}

template <class T>
void load_typed(void* tile, const void* from, std::int64_t stride, std::int64_t n) {
  copy_typed(static_cast<T*>(tile), 1, static_cast<const T*>(from), stride, n);
}

template <class T>
void store_typed(void* to, std::int64_t stride, const void* tile, std::int64_t n) {
  copy_typed(static_cast<T*>(to), stride, static_cast<const T*>(tile), 1, n);
}

}  // namespace

void copy_elements(std::size_t size, void* to, std::int64_t to_stride, const void* from,
                   std::int64_t from_stride, std::int64_t n) {
  dispatch_size(size, [&](auto zero) {
    using T = decltype(zero);
    copy_typed(static_cast<T*>(to), to_stride, static_cast<const T*>(from), from_stride, n);
  });
}

void transpose_elements(std::size_t size, void* to, std::int64_t to_row_stride, const void* from,
                        std::int64_t from_column_stride, std::int64_t rows, std::int64_t columns) {
  dispatch_size(size, [&](auto zero) {
    using T = decltype(zero);
    transpose_typed(static_cast<T*>(to), to_row_stride, static_cast<const T*>(from),
                    from_column_stride, rows, columns);
  });
}

LoadLoop raw_load(std::size_t size) {
  return dispatch_size(size, [](auto zero) -> LoadLoop { return load_typed<decltype(zero)>; });
}

StoreLoop raw_store(std::size_t size) {
  return dispatch_size(size, [](auto zero) -> StoreLoop { return store_typed<decltype(zero)>; });
}

}  // namespace lockstep::cpu_kernels
