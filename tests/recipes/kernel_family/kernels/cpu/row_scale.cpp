#include "arguments/row_scale.hpp"

#include <algorithm>
#include <cmath>

#include "cpu/lines.hpp"

namespace lockstep::cpu_kernels {

void row_scale::forward(const kernels::RowScaleArguments& arguments, StreamRef) {
  const ArrayView &y = arguments.y, &x = arguments.x;
  const int last = x.rank() - 1;
  dispatch_floating(x.dtype, "row_scale", [&](auto tag) {
    using T = typename decltype(tag)::type;
    using A = AccumulateType<T>;
    for_each_line(x.shape, last, {&y.strides, &x.strides}, [&](const auto& offset) {
      T* const to = y.as<T>() + offset[0];
      const T* const from = x.as<const T>() + offset[1];
      A largest = static_cast<A>(arguments.floor);
      for (std::int64_t i = 0; i < x.shape[last]; ++i)
        largest = std::max(largest, std::abs(widen(from[i])));
      for (std::int64_t i = 0; i < x.shape[last]; ++i) to[i] = T(widen(from[i]) / largest);
    });
  });
}

}  // namespace lockstep::cpu_kernels
