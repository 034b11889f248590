#include "lockstep/autograd/ops/comparison.hpp"

#include <cmath>
#include <limits>

#include "autograd/ops/common.hpp"
#include "autograd/ops/composed.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"

namespace lockstep {

LOCKSTEP_OP(isfinite, any, follow, same)
LOCKSTEP_OP(isinf, any, follow, same)
LOCKSTEP_OP(isnan, any, follow, same)
LOCKSTEP_OP(logical_not, any, follow, same)

namespace {

using namespace autograd;

Tensor compare(CompareOp op, const Tensor& a_in, const Tensor& b_in) {
  const OpCall call(traits(op), a_in, b_in);
  const Tensor &a = call[0], &b = call[1];
  const Shape shape = broadcast_shapes(a.shape(), b.shape(), call.name());
  Tensor out = empty(shape, {DType::boolean, a.device()});
  backend_of(a).elementwise.compare(
      {.op = op, .out = out.view(), .a = broadcast_view(a, shape), .b = broadcast_view(b, shape)},
      stream_of(a));
  return out;
}

/// a `op` b for two numbers.
bool holds(CompareOp op, double a, double b) {
#define LOCKSTEP_COMPARE_OP(name, autocast, ...) \
  if (op == CompareOp::name) return __VA_ARGS__;
#include "functional/ops.def"
  return false;
}

/// The whole number that integers compare with as they do with `value`: x > 0.5 is x > 0.
double whole_bound(CompareOp op, double value) {
  return op == CompareOp::gt || op == CompareOp::le ? std::floor(value) : std::ceil(value);
}

Tensor compare(CompareOp op, const Tensor& x, const Scalar& number) {
  if (is_floating(x.dtype())) return compare(op, x, scalar(number, x.options()));
  if (!number.fits_double() && x.dtype() == DType::i64)
    return compare(op, x, scalar(number, x.options()));
  const double value = number.to_double();
  const double bound = whole_bound(op, value);
  const bool equality = op == CompareOp::eq || op == CompareOp::ne;
  // Beyond all i64, or a fraction that none equals: the same for every element.
  const bool constant = !(bound >= -0x1p63 && bound < 0x1p63) || (equality && bound != value);
  if (constant) return full(x.shape(), holds(op, 0.0, value), {DType::boolean, x.device()});
  if (holds_whole(x.dtype(), bound)) return compare(op, x, scalar(bound, x.options()));
  // Beyond all that the dtype holds.
  return full(x.shape(), holds(op, 0.0, bound), {DType::boolean, x.device()});
}

Tensor logic(CompareOp op, const Tensor& a, const Tensor& b) {
  if (a.dtype() == b.dtype()) return compare(op, a, b);
  return compare(op, a.to(DType::boolean), b.to(DType::boolean));
}

}  // namespace

Tensor eq(const Tensor& a, const Tensor& b) { return compare(CompareOp::eq, a, b); }
Tensor ne(const Tensor& a, const Tensor& b) { return compare(CompareOp::ne, a, b); }
Tensor lt(const Tensor& a, const Tensor& b) { return compare(CompareOp::lt, a, b); }
Tensor le(const Tensor& a, const Tensor& b) { return compare(CompareOp::le, a, b); }
Tensor gt(const Tensor& a, const Tensor& b) { return compare(CompareOp::gt, a, b); }
Tensor ge(const Tensor& a, const Tensor& b) { return compare(CompareOp::ge, a, b); }

Tensor eq(const Tensor& x, Scalar value) { return compare(CompareOp::eq, x, value); }
Tensor ne(const Tensor& x, Scalar value) { return compare(CompareOp::ne, x, value); }
Tensor lt(const Tensor& x, Scalar value) { return compare(CompareOp::lt, x, value); }
Tensor le(const Tensor& x, Scalar value) { return compare(CompareOp::le, x, value); }
Tensor gt(const Tensor& x, Scalar value) { return compare(CompareOp::gt, x, value); }
Tensor ge(const Tensor& x, Scalar value) { return compare(CompareOp::ge, x, value); }

Tensor isnan(const Tensor& x) {
  const ComposedOp call(ops::isnan, x);
  return ne(x, x);
}
Tensor isinf(const Tensor& x) {
  const ComposedOp call(ops::isinf, x);
  if (!is_floating(x.dtype())) return zeros(x.shape(), {DType::boolean, x.device()});
  return eq(abs(x.detach()), std::numeric_limits<double>::infinity());
}
Tensor isfinite(const Tensor& x) {
  const ComposedOp call(ops::isfinite, x);
  if (!is_floating(x.dtype())) return ones(x.shape(), {DType::boolean, x.device()});
  return lt(abs(x.detach()), std::numeric_limits<double>::infinity());
}

Tensor logical_and(const Tensor& a, const Tensor& b) { return logic(CompareOp::logical_and, a, b); }
Tensor logical_or(const Tensor& a, const Tensor& b) { return logic(CompareOp::logical_or, a, b); }
Tensor logical_xor(const Tensor& a, const Tensor& b) { return logic(CompareOp::logical_xor, a, b); }
Tensor logical_not(const Tensor& x) {
  const ComposedOp call(ops::logical_not, x);
  return compare(CompareOp::eq, x.detach(), scalar(0.0, x.options()));
}

}  // namespace lockstep
