#include "lockstep/autograd/ops/pointwise.hpp"

#include <cmath>

#include "autograd/ops/common.hpp"

namespace lockstep {
namespace {

using namespace autograd;

Tensor unary(UnaryOp op, const Tensor& x_in, OpConstants constants = {}) {
  const OpTraits& op_traits = traits(op);
  const OpCall call(op_traits, x_in);
  const Tensor& x = call[0];
  Tensor y = empty_like(x);
  backend_of(x).elementwise.unary({.op = op, .y = y.view(), .x = x.view(), .constants = constants},
                                  stream_of(x));
  if (!call.recording()) return y;
  SavedTensor saved = op_traits.saves == Saves::input    ? SavedTensor(x)
                      : op_traits.saves == Saves::output ? SavedTensor::of_result(y)
                                                         : SavedTensor();
  return call.record(std::move(y), [op, constants, saved = std::move(saved)](
                                       const Tensor& dy, InputGradients& inputs) {
    Tensor dx = empty_like(dy);
    backend_of(dy).elementwise.unary_backward({.op = op,
                                               .dx = dx.view(),
                                               .dy = dy.view(),
                                               .saved = view_or_absent(saved.get()),
                                               .constants = constants},
                                              stream_of(dy));
    inputs.set(0, std::move(dx));
  });
}

/// Added to a product it changes nothing; +0.0 would turn -0.0 into +0.0.
constexpr double no_term = -0.0;

/// alpha * x + beta for an op to which the user gave `value`.
Tensor with_number(BinaryOp op, const Tensor& x, double value, OpConstants constants) {
  check_operand(traits(op), x);
  LOCKSTEP_CHECK(is_floating(x.dtype()) || value == std::floor(value), InvalidArgument,
                 traits(op).name, ": dtype ", x.dtype(), " takes whole numbers, got ", value,
                 "; convert the tensor with to(lockstep::DType::f32)");
  return unary(UnaryOp::affine, x, constants);
}

/// The result of a binary op: the operands' shape, or the one they broadcast to.
Tensor binary_forward(BinaryOp op, const Tensor& a, const Tensor& b, OpConstants constants) {
  if (a.shape() == b.shape()) {
    Tensor out = empty_like(a);
    backend_of(a).elementwise.binary(
        {.op = op, .out = out.view(), .a = a.view(), .b = b.view(), .constants = constants},
        stream_of(a));
    return out;
  }
  const Shape shape = broadcast_shapes(a.shape(), b.shape());
  Tensor out = shape == a.shape() ? empty_like(a) : empty(shape, a.options());
  backend_of(a).elementwise.binary({.op = op,
                                    .out = out.view(),
                                    .a = broadcast_view(a, shape),
                                    .b = broadcast_view(b, shape),
                                    .constants = constants},
                                   stream_of(a));
  return out;
}

/// a + sign * b: the gradient passes through.
Tensor additive(BinaryOp op, const Tensor& a, const Tensor& b, double alpha, double sign) {
  const OpCall call(traits(op), a, b);
  Tensor out = binary_forward(op, call[0], call[1], {.alpha = alpha});
  if (!call.recording()) return out;
  return call.record(std::move(out),
                     [factor = sign * alpha, shape_a = a.shape(), shape_b = b.shape()](
                         const Tensor& dy, InputGradients& inputs) {
                       if (inputs.wanted(1)) {
                         const Tensor db = sum_to(dy, shape_b);
                         inputs.set(1, factor == 1.0 ? db : mul(db, factor));
                       }
                       if (inputs.wanted(0)) inputs.set(0, sum_to(dy, shape_a));
                     });
}

}  // namespace

Tensor autograd::binary(BinaryOp op, const Tensor& a, const Tensor& b) {
  const OpCall call(traits(op), a, b);
  Tensor out = binary_forward(op, call[0], call[1], {});
  if (!call.recording()) return out;
  return call.record(std::move(out), [op, a = SavedTensor(call[0]), b = SavedTensor(call[1])](
                                         const Tensor& dy, InputGradients& inputs) {
    const Tensor &x = a.get(), &y = b.get();
    const Tensor da = inputs.wanted(0) ? empty(dy.shape(), dy.options()) : Tensor();
    const Tensor db = inputs.wanted(1) ? empty(dy.shape(), dy.options()) : Tensor();
    backend_of(dy).elementwise.binary_backward({.op = op,
                                                .da = view_or_absent(da),
                                                .db = view_or_absent(db),
                                                .dout = dy.view(),
                                                .a = broadcast_view(x, dy.shape()),
                                                .b = broadcast_view(y, dy.shape())},
                                               stream_of(dy));
    if (db.defined()) inputs.set(1, sum_to(db, y.shape()));
    if (da.defined()) inputs.set(0, sum_to(da, x.shape()));
  });
}

Tensor neg(const Tensor& x) { return unary(UnaryOp::neg, x); }
Tensor abs(const Tensor& x) { return unary(UnaryOp::abs, x); }
Tensor sign(const Tensor& x) { return unary(UnaryOp::sign, x); }
Tensor floor(const Tensor& x) { return unary(UnaryOp::floor, x); }
Tensor ceil(const Tensor& x) { return unary(UnaryOp::ceil, x); }
Tensor round(const Tensor& x) { return unary(UnaryOp::round, x); }
Tensor trunc(const Tensor& x) { return unary(UnaryOp::trunc, x); }
Tensor square(const Tensor& x) { return unary(UnaryOp::square, x); }
Tensor sqrt(const Tensor& x) { return unary(UnaryOp::sqrt, x); }
Tensor rsqrt(const Tensor& x) { return unary(UnaryOp::rsqrt, x); }
Tensor reciprocal(const Tensor& x) { return unary(UnaryOp::reciprocal, x); }
Tensor exp(const Tensor& x) { return unary(UnaryOp::exp, x); }
Tensor expm1(const Tensor& x) { return unary(UnaryOp::expm1, x); }
Tensor log(const Tensor& x) { return unary(UnaryOp::log, x); }
Tensor log1p(const Tensor& x) { return unary(UnaryOp::log1p, x); }
Tensor sin(const Tensor& x) { return unary(UnaryOp::sin, x); }
Tensor cos(const Tensor& x) { return unary(UnaryOp::cos, x); }
Tensor erf(const Tensor& x) { return unary(UnaryOp::erf, x); }
Tensor tanh(const Tensor& x) { return unary(UnaryOp::tanh, x); }
Tensor sigmoid(const Tensor& x) { return unary(UnaryOp::sigmoid, x); }
Tensor relu(const Tensor& x) { return unary(UnaryOp::relu, x); }
Tensor silu(const Tensor& x) { return unary(UnaryOp::silu, x); }
Tensor gelu(const Tensor& x, GeluApproximation approximation) {
  return unary(approximation == GeluApproximation::none ? UnaryOp::gelu : UnaryOp::gelu_tanh, x);
}
Tensor softplus(const Tensor& x) { return unary(UnaryOp::softplus, x); }
Tensor mish(const Tensor& x) { return unary(UnaryOp::mish, x); }
Tensor elu(const Tensor& x, double alpha) { return unary(UnaryOp::elu, x, {.alpha = alpha}); }
Tensor hardswish(const Tensor& x) { return unary(UnaryOp::hardswish, x); }
Tensor leaky_relu(const Tensor& x, double slope) {
  return unary(UnaryOp::leaky_relu, x, {.alpha = slope});
}
Tensor clamp(const Tensor& x, double low, double high) {
  LOCKSTEP_CHECK(low <= high, InvalidArgument, "clamp: low ", low, " is above high ", high);
  return unary(UnaryOp::clamp, x, {.alpha = low, .beta = high});
}
Tensor pow(const Tensor& x, double exponent) {
  return unary(UnaryOp::pow_scalar, x, {.alpha = exponent});
}
Tensor affine(const Tensor& x, double alpha, double beta) {
  return unary(UnaryOp::affine, x, {.alpha = alpha, .beta = beta});
}

Tensor add(const Tensor& a, const Tensor& b, double alpha) {
  return additive(BinaryOp::add, a, b, alpha, 1.0);
}
Tensor sub(const Tensor& a, const Tensor& b, double alpha) {
  return additive(BinaryOp::sub, a, b, alpha, -1.0);
}
Tensor add(const Tensor& x, double value) {
  return with_number(BinaryOp::add, x, value, {.alpha = 1.0, .beta = value});
}
Tensor sub(const Tensor& x, double value) {
  return with_number(BinaryOp::sub, x, value, {.alpha = 1.0, .beta = -value});
}
Tensor sub(double value, const Tensor& x) {
  return with_number(BinaryOp::sub, x, value, {.alpha = -1.0, .beta = value});
}
Tensor mul(const Tensor& x, double value) {
  return with_number(BinaryOp::mul, x, value, {.alpha = value, .beta = no_term});
}
Tensor div(const Tensor& x, double value) {
  return unary(UnaryOp::div_scalar, is_floating(x.dtype()) ? x : x.to(DType::f32),
               {.alpha = value});
}
Tensor mul(const Tensor& a, const Tensor& b) { return binary(BinaryOp::mul, a, b); }
Tensor div(const Tensor& a, const Tensor& b) { return binary(BinaryOp::div, a, b); }
Tensor maximum(const Tensor& a, const Tensor& b) { return binary(BinaryOp::maximum, a, b); }
Tensor minimum(const Tensor& a, const Tensor& b) { return binary(BinaryOp::minimum, a, b); }
Tensor pow(const Tensor& a, const Tensor& b) { return binary(BinaryOp::pow, a, b); }

Tensor where(const Tensor& condition, const Tensor& a_in, const Tensor& b_in) {
  const OpCall call(ops::where, a_in, b_in);
  const Tensor &a = call[0], &b = call[1];
  check_same_device("where", a, condition);
  LOCKSTEP_CHECK(condition.dtype() == DType::boolean, InvalidArgument,
                 "where: the condition has dtype ", condition.dtype(), ", it must be bool");
  const Shape shape = broadcast_shapes(condition.shape(), broadcast_shapes(a.shape(), b.shape()));
  Tensor out = empty(shape, a.options());
  backend_of(a).elementwise.where({.out = out.view(),
                                   .condition = broadcast_view(condition, shape),
                                   .a = broadcast_view(a, shape),
                                   .b = broadcast_view(b, shape)},
                                  stream_of(a));
  if (!call.recording()) return out;
  return call.record(std::move(out),
                     [condition = SavedTensor(condition), shape_a = a.shape(), shape_b = b.shape()](
                         const Tensor& dy, InputGradients& inputs) {
                       const Tensor zero = full({}, 0.0, dy.options());
                       const Tensor& chosen = condition.get();
                       if (inputs.wanted(0))
                         inputs.set(0, sum_to(where(chosen, dy, zero), shape_a));
                       if (inputs.wanted(1))
                         inputs.set(1, sum_to(where(chosen, zero, dy), shape_b));
                     });
}

}  // namespace lockstep
