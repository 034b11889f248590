#include "autograd/ops/common.hpp"
#include "autograd/ops/composed.hpp"
#include "lockstep/autograd/ops/comparison.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/autograd/ops/shape.hpp"

// Activations that are compositions of others: 16 bits are computed in f32 and rounded once.

namespace lockstep {

LOCKSTEP_OP(celu, floating, follow, same)
LOCKSTEP_OP(glu, floating, follow, same)
LOCKSTEP_OP(selu, floating, follow, same)

namespace {

using namespace autograd;

}  // namespace

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

Tensor glu(const Tensor& x_in, std::int64_t dim) {
  const ComposedOp call(ops::glu, x_in);
  const int d = wrap_dim(dim, x_in.dim());
  LOCKSTEP_CHECK(x_in.shape()[d] % 2 == 0, InvalidArgument, call.name(), ": dimension ", d,
                 " of shape ", x_in.shape(), " has no halves; its extent must be even");
  const auto halves = chunk(x_in.to(statistics_dtype(x_in.dtype())), 2, d);
  return (halves[0] * sigmoid(halves[1])).to(x_in.dtype());
}

}  // namespace lockstep
