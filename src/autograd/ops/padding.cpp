#include <algorithm>

#include "autograd/ops/common.hpp"
#include "autograd/ops/composed.hpp"
#include "autograd/ops/numbers.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/autograd/ops/shape.hpp"

namespace lockstep {

LOCKSTEP_OP(pad, any, follow, same)

namespace {

using namespace autograd;

/// (before, after) of the dimensions from the last on.
using Padding = std::span<const std::int64_t>;

void check_pairs(const Tensor& x, Padding padding) {
  LOCKSTEP_CHECK(padding.size() % 2 == 0 && static_cast<int>(padding.size()) / 2 <= x.dim(),
                 InvalidArgument, ops::pad.name, ": ", padding.size(), " numbers for ", x.dim(),
                 " dimensions; give (before, after) pairs from the last dimension on");
  for (std::size_t i = 0; i < padding.size(); i += 2)
    LOCKSTEP_CHECK(padding[i] >= 0 && padding[i + 1] >= 0, InvalidArgument, ops::pad.name,
                   ": negative padding ", padding[i], ", ", padding[i + 1]);
}

/// @throws InvalidArgument where a mode has no element for a place that far outside an extent.
void check_reach(PaddingMode mode, std::int64_t before, std::int64_t after, std::int64_t extent) {
  const std::int64_t most = std::max(before, after);
  switch (mode) {
    case PaddingMode::reflect:
      LOCKSTEP_CHECK(most < extent, InvalidArgument, ops::pad.name, ": a padding of ", before, ", ",
                     after, " by reflection must be less than the extent ", extent);
      return;
    case PaddingMode::circular:
      LOCKSTEP_CHECK(most <= extent, InvalidArgument, ops::pad.name, ": a circular padding of ",
                     before, ", ", after, " must not exceed the extent ", extent);
      return;
    default:
      LOCKSTEP_CHECK(extent > 0, InvalidArgument, ops::pad.name,
                     ": an extent of 0 has no element to replicate");
  }
}

/// Where in a dimension the elements of the padded one come from (i64).
Tensor sources(PaddingMode mode, std::int64_t before, std::int64_t after, std::int64_t extent,
               Device device) {
  check_reach(mode, before, after, extent);
  const Tensor place = arange(extent + before + after, {DType::i64, device}) - before;
  const std::int64_t last = extent - 1;
  switch (mode) {
    case PaddingMode::reflect: return last - abs(last - abs(place));
    case PaddingMode::circular: return remainder(place, extent);
    default: return clamp(place, 0, last);
  }
}

}  // namespace

Tensor pad(const Tensor& x, std::span<const std::int64_t> padding, PaddingMode mode) {
  if (mode == PaddingMode::constant) return pad(x, padding, 0);
  const ComposedOp call(ops::pad, x);
  check_pairs(x, padding);
  Tensor y = x;
  for (std::size_t i = 0; i < padding.size(); i += 2) {
    if (padding[i] == 0 && padding[i + 1] == 0) continue;
    const int d = x.dim() - 1 - static_cast<int>(i / 2);
    y = index_select(y, d, sources(mode, padding[i], padding[i + 1], x.size(d), x.device()));
  }
  return y.is_same(x) ? x.clone() : y;
}

Tensor pad(const Tensor& x, std::span<const std::int64_t> padding, Scalar value) {
  check_holds(ops::pad.name, x.dtype(), value);
  const OpCall call(ops::pad, x);
  check_pairs(x, padding);
  Shape shape = x.shape();
  Dims before = Dims::filled(x.dim(), 0);
  for (std::size_t i = 0; i < padding.size(); i += 2) {
    const int d = x.dim() - 1 - static_cast<int>(i / 2);
    before[d] = padding[i];
    LOCKSTEP_CHECK(!__builtin_add_overflow(shape[d], padding[i], &shape[d]) &&
                       !__builtin_add_overflow(shape[d], padding[i + 1], &shape[d]),
                   InvalidArgument, call.name(), ": a padding of ", padding[i], ", ",
                   padding[i + 1], " makes an extent that no tensor has");
  }
  const auto inner = [before](Tensor window, const Shape& from) {
    for (int d = 0; d < from.size(); ++d) window = window.slice(d, before[d], before[d] + from[d]);
    return window;
  };
  Tensor y = full(shape, value, x.options());
  backend_of(x).elementwise.copy({.out = inner(y, x.shape()).view(), .in = x.view()}, stream_of(x));
  if (!call.recording()) return y;
  return call.record(y, Differentiable{[inner](const Tensor& dy, InputGradients& inputs) {
                       inputs.set(0, inner(dy, inputs.operand_shape(0)));
                     }});
}

}  // namespace lockstep
