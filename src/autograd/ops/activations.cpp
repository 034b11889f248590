#include "autograd/ops/common.hpp"
#include "autograd/ops/composed.hpp"
#include "lockstep/autograd/ops/comparison.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/autograd/ops/shape.hpp"

// Activations, and what is said of elements, that are compositions of others: 16 bits are computed
// in f32 and rounded once.

namespace lockstep {

LOCKSTEP_OP(addcdiv, floating, widest, same)
LOCKSTEP_OP(addcmul, floating, widest, same)
LOCKSTEP_OP(celu, floating, follow, same)
LOCKSTEP_OP(logsigmoid, floating, follow, same)
LOCKSTEP_OP(scaled_softplus, floating, f32, same)
LOCKSTEP_OP(selu, floating, follow, same)

namespace {

using namespace autograd;

}  // namespace

Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, double value) {
  const ComposedOp call(ops::addcmul, x, a, b);
  const DType wide = statistics_dtype(call[0].dtype());
  return add(call[0].to(wide), call[1].to(wide) * call[2].to(wide), value).to(call[0].dtype());
}

Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, double value) {
  const ComposedOp call(ops::addcdiv, x, a, b);
  const DType wide = statistics_dtype(call[0].dtype());
  return add(call[0].to(wide), call[1].to(wide) / call[2].to(wide), value).to(call[0].dtype());
}

Tensor logsigmoid(const Tensor& x) {
  const ComposedOp call(ops::logsigmoid, x);
  return -softplus(-call[0].to(statistics_dtype(x.dtype()))).to(x.dtype());
}

Tensor hardtanh(const Tensor& x, double low, double high) {
  LOCKSTEP_CHECK(low <= high, InvalidArgument, "hardtanh: low ", low, " is above high ", high);
  return clamp(x, low, high);
}

Tensor relu6(const Tensor& x) { return clamp(x, 0, 6); }

Tensor scaled_softplus(const Tensor& x_in, double beta, double threshold) {
  // Past 20 both are the same in f32.
  if (beta == 1 && threshold >= 20 && x_in.dtype() != DType::f64) return softplus(x_in);
  const ComposedOp call(ops::scaled_softplus, x_in);
  LOCKSTEP_CHECK(beta != 0, InvalidArgument, call.name(), ": beta must not be 0");
  const Tensor x = call[0].to(statistics_dtype(call[0].dtype())), scaled = x * beta;
  const Tensor is_linear = scaled > threshold;
  // What is linear may be infinite, whose slope would be NaN.
  const Tensor curved = softplus(scaled.masked_fill(is_linear, 0)) / beta;
  return where(is_linear, x, curved).to(call[0].dtype());
}

Tensor selu(const Tensor& x_in) {
  const ComposedOp call(ops::selu, x_in);
  const Tensor x = x_in.to(statistics_dtype(x_in.dtype()));
  constexpr double alpha = 1.6732632423543772848, scale = 1.0507009873554804934;
  return (elu(x, alpha) * scale).to(x_in.dtype());
}

Tensor celu(const Tensor& x_in, double alpha) {
  const ComposedOp call(ops::celu, x_in);
  LOCKSTEP_CHECK(alpha != 0, InvalidArgument, call.name(), ": alpha must not be 0");
  const Tensor x = x_in.to(statistics_dtype(x_in.dtype()));
  // Not the exponential of what is above 0: where it is infinite, 0 times its slope is NaN. The
  // slope of elu does not cancel far below 0, as that of expm1 does, which is its result plus 1.
  const Tensor below = where(x > 0.0, 0, x) / alpha;
  return where(x > 0.0, x, (alpha > 0 ? elu(below) : expm1(below)) * alpha).to(x_in.dtype());
}

Tensor glu(const Tensor& x, std::int64_t dim) {
  const std::string_view name = traits(BinaryOp::glu).name;
  check_operand(traits(BinaryOp::glu), x);
  const int d = wrap_dim(dim, x.dim());
  LOCKSTEP_CHECK(x.shape()[d] % 2 == 0, InvalidArgument, name, ": dimension ", d, " of shape ",
                 x.shape(), " has no halves; its extent must be even");
  const auto halves = chunk(x, 2, d);
  return binary(BinaryOp::glu, halves[0], halves[1]);
}
Tensor glu(const Tensor& x, const Tensor& gate) { return binary(BinaryOp::glu, x, gate); }

}  // namespace lockstep
