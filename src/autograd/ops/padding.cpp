#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "autograd/ops/common.hpp"
#include "autograd/ops/numbers.hpp"
#include "autograd/ops/reversed.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/ops/indexing.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/autograd/ops/reduce.hpp"
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
  const Tensor place = arange(extent + before + after, {DType::i64, device}) - before;
  const std::int64_t last = extent - 1;
  switch (mode) {
    case PaddingMode::reflect: return last - abs(last - abs(place));
    case PaddingMode::circular: return remainder(place, extent);
    default: return clamp(place, 0, last);
  }
}

/// The padding of one dimension.
struct Sides {
  int dim;
  std::int64_t before, after, extent;

  /// Of a padded tensor, one side and what it repeats: of an extent of 1 where that is one element.
  std::pair<Tensor, Tensor> of(const Tensor& padded, PaddingMode mode, bool is_before) const {
    const std::int64_t n = is_before ? before : after, end = before + extent;
    const Tensor side = padded.narrow(dim, is_before ? 0 : end, n);
    switch (mode) {
      case PaddingMode::reflect:
        return {side, padded.narrow(dim, is_before ? before + 1 : end - 1 - n, n)};
      case PaddingMode::circular: return {side, padded.narrow(dim, is_before ? extent : before, n)};
      default: return {side, padded.narrow(dim, is_before ? before : end - 1, 1)};
    }
  }
};

/// The sides of each dimension that is padded, the last one first.
std::vector<Sides> sides_of(const Tensor& x, Padding padding) {
  std::vector<Sides> all;
  for (std::size_t i = 0; i < padding.size(); i += 2) {
    const int d = x.dim() - 1 - static_cast<int>(i / 2);
    if (padding[i] != 0 || padding[i + 1] != 0)
      all.push_back({d, padding[i], padding[i + 1], x.size(d)});
  }
  return all;
}

Shape padded_shape(Shape shape, std::span<const Sides> dims) {
  for (const Sides& each : dims)
    LOCKSTEP_CHECK(!__builtin_add_overflow(each.extent, each.before, &shape[each.dim]) &&
                       !__builtin_add_overflow(shape[each.dim], each.after, &shape[each.dim]),
                   InvalidArgument, ops::pad.name, ": a padding of ", each.before, ", ", each.after,
                   " makes an extent that no tensor has");
  return shape;
}

/// Of a padded tensor, what lies between the sides of those dimensions.
Tensor middle_of(Tensor padded, std::span<const Sides> dims) {
  for (const Sides& each : dims) padded = padded.narrow(each.dim, each.before, each.extent);
  return padded;
}

/// Writes what lies outside the middle, one dimension after the other: what a later one repeats
/// holds the sides of those before it.
void fill_sides(const Tensor& y, std::span<const Sides> dims, PaddingMode mode) {
  for (std::size_t i = 0; i < dims.size(); ++i) {
    const Tensor part = middle_of(y, dims.subspan(i + 1));
    for (const bool is_before : {true, false}) {
      const auto [side, repeated] = dims[i].of(part, mode, is_before);
      if (side.numel() == 0) continue;
      const ArrayView from = mode == PaddingMode::reflect ? reversed(repeated.view(), {dims[i].dim})
                                                          : repeated.expand(side.shape()).view();
      backend_of(y).elementwise.copy({.out = side.view(), .in = from}, stream_of(y));
    }
  }
}

/// The gradient of what was padded: sides are added to what they repeat.
Tensor fold_sides(const Tensor& dy, const std::vector<Sides>& dims, PaddingMode mode) {
  Tensor dx = dy;
  if (grad_enabled()) {  // to be differentiated itself
    for (auto at = dims.rbegin(); at != dims.rend(); ++at) {
      Shape shape = dx.shape();
      shape[at->dim] = at->extent;
      dx = index_add(zeros(shape, dy.options()), at->dim,
                     sources(mode, at->before, at->after, at->extent, dy.device()), dx);
    }
    return dx;
  }
  dx = dy.clone();
  for (auto at = dims.rbegin(); at != dims.rend(); ++at) {
    for (const bool is_before : {true, false}) {
      auto [side, repeated] = at->of(dx, mode, is_before);
      if (side.numel() == 0) continue;
      if (mode == PaddingMode::reflect)
        repeated.add_(flip(side, {at->dim}));
      else
        repeated.add_(repeated.shape() == side.shape() ? side : sum(side, at->dim, true));
    }
    dx = dx.narrow(at->dim, at->before, at->extent);
  }
  return dx;
}

/// Pads by elements of the tensor itself.
Tensor pad_by_mode(const Tensor& x, Padding padding, PaddingMode mode) {
  const OpCall call(ops::pad, x);
  check_pairs(x, padding);
  const std::vector<Sides> dims = sides_of(x, padding);
  for (const Sides& each : dims) check_reach(mode, each.before, each.after, each.extent);
  Tensor y = empty(padded_shape(x.shape(), dims), x.options());
  backend_of(x).elementwise.copy({.out = middle_of(y, dims).view(), .in = x.view()}, stream_of(x));
  fill_sides(y, dims, mode);
  if (!call.recording()) return y;
  return call.record(y, Differentiable{[dims, mode](const Tensor& dy, InputGradients& inputs) {
                       inputs.set(0, fold_sides(dy, dims, mode));
                     }});
}

}  // namespace

Tensor pad(const Tensor& x, std::span<const std::int64_t> padding, PaddingMode mode) {
  return mode == PaddingMode::constant ? pad(x, padding, 0) : pad_by_mode(x, padding, mode);
}

Tensor pad(const Tensor& x, std::span<const std::int64_t> padding, Scalar value) {
  check_holds(ops::pad.name, x.dtype(), value);
  const OpCall call(ops::pad, x);
  check_pairs(x, padding);
  const std::vector<Sides> dims = sides_of(x, padding);
  Tensor y = full(padded_shape(x.shape(), dims), value, x.options());
  backend_of(x).elementwise.copy({.out = middle_of(y, dims).view(), .in = x.view()}, stream_of(x));
  if (!call.recording()) return y;
  return call.record(y, Differentiable{[dims](const Tensor& dy, InputGradients& inputs) {
                       inputs.set(0, middle_of(dy, dims));
                     }});
}

}  // namespace lockstep
