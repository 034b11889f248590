#include "lockstep/autograd/ops/pointwise.hpp"

#include <limits>

#include "autograd/ops/common.hpp"
#include "autograd/ops/composed.hpp"
#include "autograd/ops/numbers.hpp"
#include "autograd/ops/recorded.hpp"
#include "lockstep/autograd/ops/comparison.hpp"

namespace lockstep {

LOCKSTEP_OP(lerp, floating, widest, same)
LOCKSTEP_OP(nan_to_num, any, follow, same)
LOCKSTEP_OP(where, any, widest, same)

namespace {

using namespace autograd;

/// @param named what users call the op: its name in messages.
Tensor unary(UnaryOp op, const Tensor& x_in, OpConstants constants, const OpDescriptor& named) {
  const OpTraits& op_traits = traits(op);
  const OpCall call(named, x_in);
  const Tensor& x = call[0];
  Tensor y = empty_like(x);
  backend_of(x).elementwise.unary({.op = op, .y = y.view(), .x = x.view(), .constants = constants},
                                  stream_of(x));
  if (!call.recording()) return y;
  SavedTensor saved = op_traits.saves == Saves::input    ? SavedTensor(x)
                      : op_traits.saves == Saves::output ? SavedTensor::of_result(y)
                                                         : SavedTensor();
  const Saves kind = op_traits.saves;
  return call.record(
      std::move(y), Differentiable{[op, kind, constants, saved = std::move(saved)](
                                       const Tensor& dy, InputGradients& inputs) {
        if (inputs.creates_graph()) {
          const Tensor of = kind == Saves::input ? inputs.operand(0, saved) : Tensor();
          const Tensor result = kind == Saves::output ? inputs.result(saved) : Tensor();
          return inputs.set(0, recorded_gradient(op, dy, of, result, constants));
        }
        Tensor dx = empty_like(dy);
        backend_of(dy).elementwise.unary_backward({.op = op,
                                                   .dx = dx.view(),
                                                   .dy = dy.view(),
                                                   .saved = view_or_absent(saved.get()),
                                                   .constants = constants},
                                                  stream_of(dy));
        inputs.set(0, std::move(dx));
      }});
}

Tensor unary(UnaryOp op, const Tensor& x, OpConstants constants = {}) {
  return unary(op, x, constants, traits(op));
}

/// Added to a product it changes nothing; +0.0 would turn -0.0 into +0.0.
constexpr double no_term = -0.0;

/// alpha * x + beta for an op to which the user gave a number.
Tensor with_number(BinaryOp op, const Tensor& x, OpConstants constants) {
  check_operand(traits(op), x);
  return unary(UnaryOp::affine, x, constants, traits(op));
}

constexpr OpDescriptor pow_by_number{.name = "pow", .autocast = AutocastPolicy::f32};

/// Operands of a quotient: integers and bool as f32.
Tensor floating(const Tensor& x) { return is_floating(x.dtype()) ? x : x.to(DType::f32); }

/// The result of a binary op: the operands' shape, or the one they broadcast to. Of operands that
/// differ in dtype it has the one that is f32.
Tensor binary_forward(BinaryOp op, const Tensor& a, const Tensor& b, OpConstants constants) {
  const Tensor& like = a.dtype() == b.dtype() || a.dtype() == DType::f32 ? a : b;
  if (a.shape() == b.shape()) {
    Tensor out = empty_like(like);
    backend_of(a).elementwise.binary(
        {.op = op, .out = out.view(), .a = a.view(), .b = b.view(), .constants = constants},
        stream_of(a));
    return out;
  }
  const Shape shape = broadcast_shapes(a.shape(), b.shape(), traits(op).name);
  Tensor out = shape == like.shape() ? empty_like(like) : empty(shape, like.options());
  backend_of(a).elementwise.binary({.op = op,
                                    .out = out.view(),
                                    .a = broadcast_view(a, shape),
                                    .b = broadcast_view(b, shape),
                                    .constants = constants},
                                   stream_of(a));
  return out;
}

/// Under mixed precision an f32 and a lower operand of add stay as they are: its kernel widens what
/// it reads, where others need a conversion before.
constexpr OpDescriptor mixed_add{.name = "add", .operands = OperandDTypes::own};

const OpDescriptor& additive_descriptor(BinaryOp op, const Tensor& a, const Tensor& b) {
  if (!thread_modes.autocast || op != BinaryOp::add || !a.defined() || !b.defined())
    return traits(op);
  const auto device = static_cast<std::size_t>(a.device().type);
  const auto is_lower = [](const Tensor& x) {
    return x.dtype() == DType::bf16 || x.dtype() == DType::f16;
  };
  const bool is_mixed =
      (a.dtype() == DType::f32 && is_lower(b)) || (b.dtype() == DType::f32 && is_lower(a));
  return is_mixed && thread_modes.autocast_dtype[device] != DType::f32 ? mixed_add : traits(op);
}

/// a + sign * b: the gradient passes through.
Tensor additive(BinaryOp op, const Tensor& a, const Tensor& b, double alpha, double sign) {
  const OpCall call(additive_descriptor(op, a, b), a, b);
  Tensor out = binary_forward(op, call[0], call[1], {.alpha = alpha});
  if (!call.recording()) return out;
  return call.record(std::move(out), Differentiable{[factor = sign * alpha](
                                                        const Tensor& dy, InputGradients& inputs) {
                       if (inputs.wanted(1)) {
                         if (factor == 1.0)
                           write_sum_to(inputs, 1, dy);
                         else
                           inputs.set(1, mul(sum_to(dy, inputs.operand_shape(1)), factor));
                       }
                       write_sum_to(inputs, 0, dy);
                     }});
}

/// The largest number of a floating dtype.
double largest_number(DType dtype) {
  switch (dtype) {
    case DType::bf16: return 0x1.FEp127;
    case DType::f16: return 65504;
    case DType::f32: return std::numeric_limits<float>::max();
    default: return std::numeric_limits<double>::max();
  }
}

}  // namespace

Tensor autograd::binary(BinaryOp op, const Tensor& a, const Tensor& b,
                        const OpConstants& constants) {
  const OpCall call(traits(op), a, b);
  Tensor out = binary_forward(op, call[0], call[1], constants);
  if (!call.recording()) return out;
  return call.record(
      std::move(out),
      Differentiable{[op, constants, a = SavedTensor(call[0]), b = SavedTensor(call[1])](
                         const Tensor& dy, InputGradients& inputs) {
        const Tensor &x = a.get(), &y = b.get();
        if (inputs.creates_graph()) {
          auto [da, db] =
              recorded_gradients(op, dy, inputs.operand(0, a), inputs.operand(1, b), constants);
          if (inputs.wanted(1)) inputs.set(1, sum_to(std::move(db), y.shape()));
          if (inputs.wanted(0)) inputs.set(0, sum_to(std::move(da), x.shape()));
          return;
        }
        Tensor da = inputs.wanted(0) ? empty(dy.shape(), dy.options()) : Tensor();
        Tensor db = inputs.wanted(1) ? empty(dy.shape(), dy.options()) : Tensor();
        backend_of(dy).elementwise.binary_backward({.op = op,
                                                    .da = view_or_absent(da),
                                                    .db = view_or_absent(db),
                                                    .dout = dy.view(),
                                                    .a = broadcast_view(x, dy.shape()),
                                                    .b = broadcast_view(y, dy.shape()),
                                                    .constants = constants},
                                                   stream_of(dy));
        if (db.defined()) inputs.set(1, sum_to(std::move(db), y.shape()));
        if (da.defined()) inputs.set(0, sum_to(std::move(da), x.shape()));
      }});
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
Tensor log2(const Tensor& x) { return unary(UnaryOp::log2, x); }
Tensor log10(const Tensor& x) { return unary(UnaryOp::log10, x); }
Tensor log1p(const Tensor& x) { return unary(UnaryOp::log1p, x); }
Tensor sin(const Tensor& x) { return unary(UnaryOp::sin, x); }
Tensor cos(const Tensor& x) { return unary(UnaryOp::cos, x); }
Tensor tan(const Tensor& x) { return unary(UnaryOp::tan, x); }
Tensor atan(const Tensor& x) { return unary(UnaryOp::atan, x); }
Tensor asin(const Tensor& x) { return unary(UnaryOp::asin, x); }
Tensor acos(const Tensor& x) { return unary(UnaryOp::acos, x); }
Tensor sinh(const Tensor& x) { return unary(UnaryOp::sinh, x); }
Tensor cosh(const Tensor& x) { return unary(UnaryOp::cosh, x); }
Tensor asinh(const Tensor& x) { return unary(UnaryOp::asinh, x); }
Tensor acosh(const Tensor& x) { return unary(UnaryOp::acosh, x); }
Tensor atanh(const Tensor& x) { return unary(UnaryOp::atanh, x); }
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
Tensor prelu(const Tensor& x, const Tensor& slopes) {
  check_operand(traits(BinaryOp::prelu), x);
  check_operand(traits(BinaryOp::prelu), slopes);
  const std::int64_t channels = x.dim() > 1 ? x.size(1) : 1;
  LOCKSTEP_CHECK(slopes.dim() <= 1 && (slopes.numel() == 1 || slopes.numel() == channels),
                 InvalidArgument, traits(BinaryOp::prelu).name, ": slopes of shape ",
                 slopes.shape(), " for an input of shape ", x.shape(),
                 "; it needs one, or one for each of ", channels, " channels");
  Shape along = Dims::filled(x.dim(), 1);
  if (slopes.numel() != 1) along[1] = channels;
  return binary(BinaryOp::prelu, x, slopes.reshape(along));
}
Tensor clamp(const Tensor& x, Scalar low, Scalar high) {
  LOCKSTEP_CHECK(!std::isnan(low.to_double()) && !std::isnan(high.to_double()), InvalidArgument,
                 "clamp: a bound is not a number: low ", low.to_double(), ", high ",
                 high.to_double());
  check_whole("clamp", x.dtype(), low);
  check_whole("clamp", x.dtype(), high);
  // Past its range an integer dtype has no element to limit, or none to give. All ranges hold 0.
  if (low.to_double() > 0) check_holds("clamp", x.dtype(), low);
  if (high.to_double() < 0) check_holds("clamp", x.dtype(), high);
  if (exceeds_constants(x.dtype(), low))
    return clamp_max(maximum(x, scalar(low, x.options())), high);
  if (exceeds_constants(x.dtype(), high))
    return minimum(clamp_min(x, low), scalar(high, x.options()));
  return unary(UnaryOp::clamp, x, {.alpha = low.to_double(), .beta = high.to_double()});
}
Tensor clamp_min(const Tensor& x, Scalar low) {
  return clamp(x, low, std::numeric_limits<double>::infinity());
}
Tensor clamp_max(const Tensor& x, Scalar high) {
  return clamp(x, -std::numeric_limits<double>::infinity(), high);
}
Tensor pow(const Tensor& x, double exponent) {
  return unary(UnaryOp::pow_scalar, x, {.alpha = exponent}, pow_by_number);
}
Tensor affine(const Tensor& x, Scalar alpha, Scalar beta) {
  alpha = wrapped("affine", x.dtype(), alpha);
  beta = wrapped("affine", x.dtype(), beta);
  if (exceeds_constants(x.dtype(), alpha) || exceeds_constants(x.dtype(), beta))
    return add(mul(x, alpha), beta);
  return unary(UnaryOp::affine, x, {.alpha = alpha.to_double(), .beta = beta.to_double()});
}

Tensor add(const Tensor& a, const Tensor& b, double alpha) {
  return additive(BinaryOp::add, a, b, alpha, 1.0);
}
Tensor sub(const Tensor& a, const Tensor& b, double alpha) {
  return additive(BinaryOp::sub, a, b, alpha, -1.0);
}
Tensor add(const Tensor& x, Scalar value) {
  value = wrapped("add", x.dtype(), value);
  if (exceeds_constants(x.dtype(), value)) return add(x, scalar(value, x.options()));
  return with_number(BinaryOp::add, x, {.alpha = 1.0, .beta = value.to_double()});
}
Tensor sub(const Tensor& x, Scalar value) {
  value = wrapped("sub", x.dtype(), value);
  if (exceeds_constants(x.dtype(), value)) return sub(x, scalar(value, x.options()));
  return with_number(BinaryOp::sub, x, {.alpha = 1.0, .beta = negative(x.dtype(), value)});
}
Tensor sub(Scalar value, const Tensor& x) {
  value = wrapped("sub", x.dtype(), value);
  if (exceeds_constants(x.dtype(), value)) return sub(scalar(value, x.options()), x);
  return with_number(BinaryOp::sub, x, {.alpha = -1.0, .beta = value.to_double()});
}
Tensor mul(const Tensor& x, Scalar value) {
  value = wrapped("mul", x.dtype(), value);
  if (exceeds_constants(x.dtype(), value)) return mul(x, scalar(value, x.options()));
  return with_number(BinaryOp::mul, x, {.alpha = value.to_double(), .beta = no_term});
}
Tensor mul(const Tensor& a, const Tensor& b) { return binary(BinaryOp::mul, a, b); }

Tensor div(const Tensor& a, const Tensor& b) {
  if (is_floating(a.dtype()) || is_floating(b.dtype())) return binary(BinaryOp::div, a, b);
  return binary(BinaryOp::div, floating(a), floating(b));
}
Tensor div(const Tensor& x, Scalar value) {
  return unary(UnaryOp::div_scalar, floating(x), {.alpha = value.to_double()},
               traits(BinaryOp::div));
}
Tensor div(Scalar value, const Tensor& x) {
  const Tensor divisor = floating(x);
  return binary(BinaryOp::div, scalar(value, divisor.options()), divisor);
}
Tensor div(const Tensor& a, const Tensor& b, RoundingMode rounding) {
  if (rounding == RoundingMode::floor) return floor_divide(a, b);
  // The gradient is floor_divide's: 0 times the quotient's would be NaN where b is 0.
  const bool is_recorded = grad_enabled() && (a.requires_grad() || b.requires_grad());
  const Tensor whole = no_grad([&] {
    const Tensor quotient = binary(BinaryOp::div, a, b);  // that of integers is cut off
    return is_floating(quotient.dtype()) ? trunc(quotient) : quotient;
  });
  if (!is_recorded) return whole;
  return where(ones({}, {DType::boolean, whole.device()}), whole, floor_divide(a, b));
}
Tensor floor_divide(const Tensor& a, const Tensor& b) {
  return binary(BinaryOp::floor_divide, a, b);
}

Tensor remainder(const Tensor& a, const Tensor& b) { return binary(BinaryOp::remainder, a, b); }
Tensor remainder(const Tensor& x, Scalar value) {
  check_holds(traits(BinaryOp::remainder).name, x.dtype(), value);
  return remainder(x, scalar(value, x.options()));
}
Tensor fmod(const Tensor& a, const Tensor& b) { return binary(BinaryOp::fmod, a, b); }
Tensor fmod(const Tensor& x, Scalar value) {
  check_holds(traits(BinaryOp::fmod).name, x.dtype(), value);
  return fmod(x, scalar(value, x.options()));
}
Tensor atan2(const Tensor& y, const Tensor& x) { return binary(BinaryOp::atan2, y, x); }

Tensor maximum(const Tensor& a, const Tensor& b) { return binary(BinaryOp::maximum, a, b); }
Tensor minimum(const Tensor& a, const Tensor& b) { return binary(BinaryOp::minimum, a, b); }
Tensor pow(const Tensor& a, const Tensor& b) { return binary(BinaryOp::pow, a, b); }
Tensor pow(Scalar base, const Tensor& exponent) {
  return pow(scalar(base, exponent.options()), exponent);
}
Tensor swiglu(const Tensor& gate, const Tensor& up) { return binary(BinaryOp::swiglu, gate, up); }

Tensor lerp(const Tensor& a_in, const Tensor& b_in, const Tensor& weight_in) {
  const ComposedOp call(ops::lerp, a_in, b_in, weight_in);
  const DType dtype = call[0].dtype(), wide = statistics_dtype(dtype);
  const Tensor a = call[0].to(wide), b = call[1].to(wide), weight = call[2].to(wide);
  const Tensor near_a = abs(weight) < 0.5;
  return (where(near_a, a, b) + where(near_a, weight, weight - 1) * (b - a)).to(dtype);
}
Tensor lerp(const Tensor& a_in, const Tensor& b_in, double weight) {
  const OpCall call(ops::lerp, a_in, b_in);
  const DType dtype = call[0].dtype(), wide = statistics_dtype(dtype);
  Tensor y = no_grad([&] {
    const Tensor a = call[0].to(wide), b = call[1].to(wide);
    return (std::abs(weight) < 0.5 ? add(a, b - a, weight) : add(b, b - a, weight - 1)).to(dtype);
  });
  if (!call.recording()) return y;
  return call.record(std::move(y),
                     Differentiable{[weight](const Tensor& dy, InputGradients& inputs) {
                       if (inputs.wanted(1))
                         inputs.set(1, sum_to(mul(dy, weight), inputs.operand_shape(1)));
                       if (inputs.wanted(0))
                         inputs.set(0, sum_to(mul(dy, 1 - weight), inputs.operand_shape(0)));
                     }});
}

Tensor where(const Tensor& condition, const Tensor& a_in, const Tensor& b_in) {
  const OpCall call(ops::where, a_in, b_in);
  const Tensor &a = call[0], &b = call[1];
  check_same_device(call.name(), a, condition);
  LOCKSTEP_CHECK(condition.dtype() == DType::boolean, InvalidArgument, call.name(),
                 ": the condition has dtype ", condition.dtype(), ", it must be bool");
  const Shape shape = broadcast_shapes(
      condition.shape(), broadcast_shapes(a.shape(), b.shape(), call.name()), call.name());
  Tensor out = empty(shape, a.options());
  backend_of(a).elementwise.where({.out = out.view(),
                                   .condition = broadcast_view(condition, shape),
                                   .a = broadcast_view(a, shape),
                                   .b = broadcast_view(b, shape)},
                                  stream_of(a));
  if (!call.recording()) return out;
  return call.record(std::move(out), Differentiable{[condition = SavedTensor(condition)](
                                                        const Tensor& dy, InputGradients& inputs) {
                       const Tensor zero = full({}, 0.0, dy.options());
                       const Tensor& chosen = condition.get();
                       if (inputs.wanted(0))
                         inputs.set(0, sum_to(where(chosen, dy, zero), inputs.operand_shape(0)));
                       if (inputs.wanted(1))
                         inputs.set(1, sum_to(where(chosen, zero, dy), inputs.operand_shape(1)));
                     }});
}

Tensor nan_to_num(const Tensor& x, double nan, std::optional<double> positive,
                  std::optional<double> negative) {
  if (!is_floating(x.dtype())) return ComposedOp(ops::nan_to_num, x)[0].clone();
  const OpCall call(ops::nan_to_num, x);
  Tensor y = no_grad([&] {
    const double infinity = std::numeric_limits<double>::infinity();
    const double largest = largest_number(x.dtype());
    // Of all numbers the bounds move the infinite ones alone.
    Tensor bounded = clamp(x, negative ? -infinity : -largest, positive ? infinity : largest);
    if (negative) bounded = where(x == -infinity, *negative, bounded);
    if (positive) bounded = where(x == infinity, *positive, bounded);
    return where(isnan(x), nan, bounded);
  });
  if (!call.recording()) return y;
  return call.record(std::move(y), Differentiable{[x = SavedTensor(call[0])](
                                                      const Tensor& dy, InputGradients& inputs) {
                       inputs.set(0, where(isfinite(x.get()), dy, 0.0));
                     }});
}

Tensor where(const Tensor& condition, const Tensor& a, Scalar b) {
  check_holds(ops::where.name, a.dtype(), b);
  return where(condition, a, scalar(b, a.options()));
}
Tensor where(const Tensor& condition, Scalar a, const Tensor& b) {
  check_holds(ops::where.name, b.dtype(), a);
  return where(condition, scalar(a, b.options()), b);
}

}  // namespace lockstep
