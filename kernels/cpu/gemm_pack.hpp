#pragma once

#include <algorithm>
#include <cstdint>

namespace lockstep::cpu_kernels {

/// A strided matrix operand; element (i, p) is at data[i * stride + p * depth_stride].
template <class T>
struct PackSource {
  const T* data;
  std::int64_t stride;
  std::int64_t depth_stride;
};

/// Packs `count` rows of a matrix into panels of `panel` rows, converting to the accumulation type:
/// to[(i / panel) * depth * panel + p * panel + i % panel]. The last panel is filled with zeros.
template <class T, class Sum>
void pack_panels(Sum* to, const PackSource<T>& from, std::int64_t count, std::int64_t depth,
                 std::int64_t panel) {
  for (std::int64_t first = 0; first < count; first += panel, to += depth * panel) {
    const std::int64_t rows = std::min(panel, count - first);
    const T* source = from.data + first * from.stride;
    if (rows < panel) std::fill(to, to + depth * panel, Sum(0));
    if (from.stride == 1) {
      for (std::int64_t p = 0; p < depth; ++p)
        for (std::int64_t i = 0; i < rows; ++i)
          to[p * panel + i] = static_cast<Sum>(source[p * from.depth_stride + i]);
    } else {
      for (std::int64_t p = 0; p < depth; ++p)
        for (std::int64_t i = 0; i < rows; ++i)
          to[p * panel + i] = static_cast<Sum>(source[i * from.stride + p * from.depth_stride]);
    }
  }
}

}  // namespace lockstep::cpu_kernels
