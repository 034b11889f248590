#include "arguments/rotary.hpp"

#include <algorithm>

#include "cpu/rows.hpp"
#include "lockstep/core/parallel.hpp"

namespace lockstep::cpu_kernels {

void rotary::rotate(const kernels::RotaryArguments& a, StreamRef) {
  const auto loop = loops().rows.rotary[floating_index("rotary_embedding", a.x.dtype)];
  const std::int64_t heads = a.x.shape[1], time = a.x.shape[2], width = a.x.shape[3];
  // Array `view` from image n and position t on; dimension `d` is its time.
  const auto at = [](const ArrayView& view, std::int64_t n, std::int64_t t, int d) {
    const std::int64_t offset = n * view.strides[0] + t * view.strides[d];
    return view.as<char>() + offset * static_cast<std::int64_t>(lockstep::size_of(view.dtype));
  };
  const std::int64_t grain =
      std::max<std::int64_t>(1, parallel_grain / std::max<std::int64_t>(1, heads * width));
  parallel_for(a.x.shape[0] * time, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t n = row / time, t = row % time;
      loop({.y = at(a.y, n, t, 2),
            .x = at(a.x, n, t, 2),
            .cos = at(a.cos, n, t, 1),
            .sin = at(a.sin, n, t, 1),
            .pairs = width / 2,
            .y_stride = a.y.strides[1],
            .x_stride = a.x.strides[1],
            .inverse = a.inverse},
           0, heads);
    }
  });
}

}  // namespace lockstep::cpu_kernels
