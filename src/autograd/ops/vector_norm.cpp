#include <algorithm>
#include <cmath>

#include "autograd/ops/common.hpp"
#include "autograd/ops/composed.hpp"
#include "lockstep/autograd/ops/comparison.hpp"
#include "lockstep/autograd/ops/matmul.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/autograd/ops/reduce.hpp"
#include "lockstep/autograd/ops/shape.hpp"

namespace lockstep {

LOCKSTEP_OP(cdist, floating, f32, same)
LOCKSTEP_OP(vector_norm, floating, f32, same)

namespace {

using namespace autograd;

/// x to a power, without the slope at 0, which is infinite for small powers.
Tensor power(const Tensor& x, double exponent) {
  const Tensor none = x == 0.0;
  return where(none, std::pow(0.0, exponent), pow(where(none, 1, x), exponent));
}

/// @param size |x|, in the dtype of statistics.
Tensor norm_of_sizes(const Tensor& size, double p, const Dims& dims, bool keepdim) {
  if (p == 0) return sum(where(isnan(size), 1, sign(size)), dims, keepdim);
  if (p == 1) return sum(size, dims, keepdim);
  if (std::isinf(p) && p > 0) return amax(size, dims, keepdim);
  // Of no element the norms below 0 would be that of the least one: refused there.
  if (std::isinf(p) || (p < 0 && size.numel() == 0)) return amin(size, dims, keepdim);
  return power(sum(power(size, p), dims, keepdim), 1 / p);
}

/// |a|^2 + |b|^2 - 2 ab, as one product in f64. What may be no more than the roundings of that is
/// 0: a distance between equal points, or points as close as f32 can have them.
Tensor squared_distances(const Tensor& a, const Tensor& b) {
  const Tensor of_a = sum(square(a), -1, true), of_b = sum(square(b), -1, true);
  const Tensor left = cat({a * -2.0, of_a, ones_like(of_a)}, -1);
  const Tensor right = cat({b, ones_like(of_b), of_b}, -1);
  const Tensor squares = matmul(left, right.transpose(-2, -1));
  const double rounding = 0x1p-52 * static_cast<double>(left.size(-1));
  return where(squares <= of_a * rounding + of_b.transpose(-2, -1) * rounding, 0.0, squares);
}

/// Euclidean distances of points in f32. In f64 such a sum of squares and products keeps what is
/// left of it for points that are close.
Tensor distances_by_products(const Tensor& a_in, const Tensor& b_in) {
  constexpr DType wide = DType::f64;
  const OpCall call(ops::cdist, a_in, b_in);
  const Tensor &a = call[0], &b = call[1];
  Tensor y = no_grad([&] { return sqrt(squared_distances(a.to(wide), b.to(wide))).to(a.dtype()); });
  if (!call.recording()) return y;
  const auto backward = [a = SavedTensor(a), b = SavedTensor(b), y = SavedTensor::of_result(y)](
                            const Tensor& dy, InputGradients& inputs) {
    const Tensor x = inputs.operand(0, a).to(wide), z = inputs.operand(1, b).to(wide);
    const Tensor distance = inputs.result(y).to(wide), same = distance == 0.0;
    const Tensor slope = where(same, 0.0, dy.to(wide) / where(same, 1.0, distance));
    const auto gradient = [](const Tensor& slopes, const Tensor& from, const Tensor& to) {
      return from * sum(slopes, -1, true) - matmul(slopes, to);
    };
    const DType dtype = dy.dtype();
    if (inputs.wanted(1))
      inputs.set(1, sum_to(gradient(slope.transpose(-2, -1), z, x), z.shape()).to(dtype));
    if (inputs.wanted(0)) inputs.set(0, sum_to(gradient(slope, x, z), x.shape()).to(dtype));
  };
  return call.record(std::move(y), Differentiable{backward});
}

}  // namespace

Tensor vector_norm(const Tensor& x_in, double p, const Dims& dims, bool keepdim) {
  const ComposedOp call(ops::vector_norm, x_in);
  LOCKSTEP_CHECK(!std::isnan(p), InvalidArgument, call.name(), ": the order is NaN");
  const Tensor& x = call[0];
  if (p == 2) return norm(x, dims, keepdim);
  const Tensor wide = x.to(statistics_dtype(x.dtype()));
  // The slope of abs is 0 at NaN; that of the norm of such a line is NaN, but for p = 1.
  const Tensor size =
      p == 0 || p == 1 || std::isinf(p) ? abs(wide) : where(wide < 0.0, -wide, wide);
  return norm_of_sizes(size, p, dims, keepdim).to(x.dtype());
}

Tensor cdist(const Tensor& a_in, const Tensor& b_in, double p) {
  const ComposedOp call(ops::cdist, a_in, b_in);
  const Tensor &a = call[0], &b = call[1];
  LOCKSTEP_CHECK(a.dim() >= 2 && b.dim() >= 2 && a.size(-1) == b.size(-1), InvalidArgument,
                 call.name(), ": points of shapes ", a.shape(), " and ", b.shape(),
                 "; it needs [..., P, M] and [..., R, M]");
  LOCKSTEP_CHECK(p >= 0, InvalidArgument, call.name(), ": p = ", p, "; it must not be negative");
  const DType wide = statistics_dtype(a.dtype());
  // Of few coordinates differences take less time than squares, and of few points.
  const bool is_product = a.size(-1) >= 8 && std::max(a.size(-2), b.size(-2)) > 25;
  if (p == 2 && wide == DType::f32 && is_product)
    return distances_by_products(a.to(wide), b.to(wide)).to(a.dtype());
  const Tensor between = a.to(wide).unsqueeze(-2) - b.to(wide).unsqueeze(-3);
  // Points without coordinates are as far apart by all norms.
  return vector_norm(between, a.size(-1) == 0 ? 2 : p, -1).to(a.dtype());
}

}  // namespace lockstep
