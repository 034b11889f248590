#include "cpu/raw.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "cpu/shuffle.hpp"
#include "cpu/source_rows.hpp"

namespace lockstep::cpu_kernels {
namespace {

using LOCKSTEP_ISA::copy_each_row;

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

/// Sixteen bytes, which every processor here transposes in registers.
template <class T>
using Lanes __attribute__((vector_size(16))) = T;

/// Whole vectors: GCC makes none of this at -O2.
template <class T>
void fill_typed(T* to, T value, std::int64_t n) {
  constexpr std::int64_t count = 16 / sizeof(T);
  const Lanes<T> lanes = value - Lanes<T>{};
  std::int64_t i = 0;
  for (; i + count <= n; i += count) std::memcpy(to + i, &lanes, sizeof lanes);
  for (; i < n; ++i) to[i] = value;
}

template <class T, int... lane>
Lanes<T> reversed(Lanes<T> lanes, std::integer_sequence<int, lane...>) {
  constexpr int last = sizeof...(lane) - 1;
  return shuffled<(last - lane)...>(lanes, lanes);
}

/// Elements that come in the order opposite to that in memory; `from` is the first of them.
template <class T>
void copy_reversed(T* to, const T* from, std::int64_t n) {
  constexpr int count = 16 / sizeof(T);
  std::int64_t i = 0;
  for (; i + count <= n; i += count) {
    Lanes<T> lanes;
    std::memcpy(&lanes, from - i - (count - 1), sizeof lanes);
    lanes = reversed<T>(lanes, std::make_integer_sequence<int, count>());
    std::memcpy(to + i, &lanes, sizeof lanes);
  }
  for (; i < n; ++i) to[i] = from[-i];
}

template <class T>
void copy_typed(T* to, std::int64_t to_stride, const T* from, std::int64_t from_stride,
                std::int64_t n) {
  if (to_stride == 1 && from_stride == 1) {
    if (n > 0) std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(T));
  } else if (to_stride == 1 && from_stride == 0) {
    fill_typed(to, *from, n);
  } else if (to_stride == 1 && from_stride == -1) {
    copy_reversed(to, from, n);
  } else if (to_stride == 1) {
    for (std::int64_t i = 0; i < n; ++i) to[i] = from[i * from_stride];
  } else {
    for (std::int64_t i = 0; i < n; ++i) to[i * to_stride] = from[i * from_stride];
  }
}

/// Rows of at least one word; their last words overlap where they do not fill whole ones.
template <class Word>
void copy_rows_by(char* to, std::int64_t to_stride, const char* from, std::int64_t from_stride,
                  std::int64_t row_bytes, std::int64_t count) {
  constexpr std::int64_t width = sizeof(Word);
  const auto copy_word = [&](std::int64_t at) {
    Word word;
    std::memcpy(&word, from + at, width);
    std::memcpy(to + at, &word, width);
  };
  for (; count > 0; --count, to += to_stride, from += from_stride) {
    for (std::int64_t at = 0; at + width <= row_bytes; at += width) copy_word(at);
    if (row_bytes % width != 0) copy_word(row_bytes - width);
  }
}

/// The lower halves (`half` 0) or the upper ones (1) of two vectors, their lanes in turns.
template <int half, class T, int... lane>
Lanes<T> interleave(Lanes<T> a, Lanes<T> b, std::integer_sequence<int, lane...>) {
  constexpr int count = sizeof...(lane);
  return shuffled<(half * count / 2 + lane / 2 + lane % 2 * count)...>(a, b);
}

/// Transposes a square of as many elements as 16 bytes hold: each round lays the upper half of the
/// rows between the lower half's, and after log2 of their number rows are columns.
template <class T>
void transpose_square(T* to, std::int64_t to_row_stride, const T* from,
                      std::int64_t from_column_stride) {
  constexpr int count = 16 / sizeof(T);
  constexpr std::make_integer_sequence<int, count> lanes;
  Lanes<T> rows[count], next[count];
#pragma GCC unroll 16
  for (int i = 0; i < count; ++i) std::memcpy(&rows[i], from + i * from_column_stride, 16);
#pragma GCC unroll 4
  for (int round = 1; round < count; round *= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < count / 2; ++i) {
      next[2 * i] = interleave<0, T>(rows[i], rows[i + count / 2], lanes);
      next[2 * i + 1] = interleave<1, T>(rows[i], rows[i + count / 2], lanes);
    }
#pragma GCC unroll 16
    for (int i = 0; i < count; ++i) rows[i] = next[i];
  }
#pragma GCC unroll 16
  for (int i = 0; i < count; ++i) std::memcpy(to + i * to_row_stride, &rows[i], 16);
}

/// Few columns, as the channels of an image, element by element.
template <int columns, class T>
void transpose_columns(T* to, std::int64_t to_row_stride, const T* from,
                       std::int64_t from_column_stride, std::int64_t rows) {
  for (std::int64_t r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < columns; ++c) to[r * to_row_stride + c] = from[r + c * from_column_stride];
}

/// Square blocks keep both sides' cache lines alive until they are used up.
template <class T>
void transpose_typed(T* to, std::int64_t to_row_stride, const T* from,
                     std::int64_t from_column_stride, std::int64_t rows, std::int64_t columns) {
  switch (columns) {
    case 2: return transpose_columns<2>(to, to_row_stride, from, from_column_stride, rows);
    case 3: return transpose_columns<3>(to, to_row_stride, from, from_column_stride, rows);
    case 4: return transpose_columns<4>(to, to_row_stride, from, from_column_stride, rows);
    default: break;
  }
  constexpr std::int64_t block = 16, square = 16 / sizeof(T);
  for (std::int64_t r0 = 0; r0 < rows; r0 += block) {
    const std::int64_t r1 = std::min(rows, r0 + block);
    for (std::int64_t c0 = 0; c0 < columns; c0 += block) {
      const std::int64_t c1 = std::min(columns, c0 + block);
      if (r1 - r0 == block && c1 - c0 == block) {
        for (std::int64_t r = r0; r < r1; r += square)
          for (std::int64_t c = c0; c < c1; c += square)
            transpose_square(to + r * to_row_stride + c, to_row_stride,
                             from + r + c * from_column_stride, from_column_stride);
        continue;
      }
      for (std::int64_t r = r0; r < r1; ++r)
        for (std::int64_t c = c0; c < c1; ++c)
          to[r * to_row_stride + c] = from[r + c * from_column_stride];
    }
  }
}

template <class T>
void load_rows_typed(void* tile, const SourceRows& source) {
  copy_each_row<T, T>(static_cast<T*>(tile), source, copy_typed<T>);
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

void copy_rows(char* to, std::int64_t to_stride, const char* from, std::int64_t from_stride,
               std::int64_t row_bytes, std::int64_t count) {
  const auto copy = row_bytes >= 16  ? copy_rows_by<Lanes<std::uint64_t>>
                    : row_bytes >= 8 ? copy_rows_by<std::uint64_t>
                    : row_bytes >= 4 ? copy_rows_by<std::uint32_t>
                    : row_bytes >= 2 ? copy_rows_by<std::uint16_t>
                                     : copy_rows_by<std::uint8_t>;
  copy(to, to_stride, from, from_stride, row_bytes, count);
}

void transpose_elements(std::size_t size, void* to, std::int64_t to_row_stride, const void* from,
                        std::int64_t from_column_stride, std::int64_t rows, std::int64_t columns) {
  dispatch_size(size, [&](auto zero) {
    using T = decltype(zero);
    transpose_typed(static_cast<T*>(to), to_row_stride, static_cast<const T*>(from),
                    from_column_stride, rows, columns);
  });
}

LoadRowsLoop raw_load_rows(std::size_t size) {
  return dispatch_size(size,
                       [](auto zero) -> LoadRowsLoop { return load_rows_typed<decltype(zero)>; });
}

StoreLoop raw_store(std::size_t size) {
  return dispatch_size(size, [](auto zero) -> StoreLoop { return store_typed<decltype(zero)>; });
}

}  // namespace lockstep::cpu_kernels
