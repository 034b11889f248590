#include "cpu/plane_pooling.hpp"

#include <algorithm>

#include "cpu/loops.hpp"
#include "cpu/tiles.hpp"
#include "lockstep/core/parallel.hpp"

namespace lockstep::cpu_kernels {
namespace {

/// True if each plane is dense and has one window, which covers it and nothing else.
bool pools_whole_planes(const kernels::PoolGeometry& geometry, const ArrayView& pooled,
                        const ArrayView& image) {
  if (!is_floating(image.dtype) || pooled.shape[2] != 1 || pooled.shape[3] != 1) return false;
  const PoolWindows windows = windows_of(geometry, pooled, image);
  for (const PoolAxis& axis : windows.axis)
    if (axis.in == 0 || functional::pool_window(axis, 0).extent() != axis.in ||
        functional::pool_extent(axis, 0, windows.count_padding) != axis.in)
      return false;
  return contiguous_count(image) >= 0 && contiguous_count(pooled) >= 0;
}

/// Calls `body(first plane, last, positions of a plane)` for all planes, in parallel.
template <class Body>
void for_each_planes(const ArrayView& image, const Body& body) {
  const std::int64_t positions = image.shape[2] * image.shape[3];
  const std::int64_t grain = std::max<std::int64_t>(1, parallel_grain / positions);
  parallel_for(image.shape[0] * image.shape[1], grain,
               [&](std::int64_t begin, std::int64_t end) { body(begin, end, positions); });
}

}  // namespace

bool average_planes(const kernels::AveragePoolArguments& a) {
  if (!pools_whole_planes(a.geometry, a.y, a.x)) return false;
  const auto bytes = static_cast<std::int64_t>(size_of(a.x.dtype));
  const auto loop = loops().pool[static_cast<std::size_t>(a.x.dtype)].plane_means;
  for_each_planes(a.x, [&](std::int64_t begin, std::int64_t end, std::int64_t positions) {
    loop(a.y.as<char>() + begin * bytes, a.x.as<char>() + begin * positions * bytes, end - begin,
         positions);
  });
  return true;
}

bool average_planes_backward(const kernels::AveragePoolBackwardArguments& a) {
  if (!pools_whole_planes(a.geometry, a.dy, a.dx)) return false;
  dispatch_floating(a.dx.dtype, "avg_pool2d backward", [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Sum = AccumulateType<T>;
    for_each_planes(a.dx, [&](std::int64_t begin, std::int64_t end, std::int64_t positions) {
      for (std::int64_t plane = begin; plane < end; ++plane) {
        const Sum dy = static_cast<Sum>(a.dy.as<const T>()[plane]);
        std::fill_n(a.dx.as<T>() + plane * positions, positions,
                    T(dy / static_cast<Sum>(positions)));
      }
    });
  });
  return true;
}

}  // namespace lockstep::cpu_kernels
