#include <cmath>
#include <limits>
#include <numbers>

#include "autograd/ops/common.hpp"
#include "autograd/ops/recorded.hpp"
#include "lockstep/autograd/ops/comparison.hpp"
#include "lockstep/autograd/ops/indexing.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"

// The gradients of the functors in functional/unary.hpp and binary.hpp, from recorded ops.

namespace lockstep::autograd {
namespace {

/// dy where the mask is true, else 0: also where dy is infinite.
Tensor kept(const Tensor& dy, const Tensor& mask) { return where(mask, dy, 0); }

/// 0 whatever dy is, with its graph.
Tensor nothing_of(const Tensor& dy) { return kept(dy, zeros({}, {DType::boolean, dy.device()})); }

Tensor wide_gradient(UnaryOp op, const Tensor& dy, const Tensor& x, const Tensor& y,
                     const OpConstants& constants) {
  using std::numbers::ln10, std::numbers::ln2, std::numbers::pi;
  const double alpha = constants.alpha, beta = constants.beta;
  switch (op) {
    case UnaryOp::neg: return -dy;
    case UnaryOp::abs: return where(x > 0.0, dy, where(x < 0.0, -dy, 0));
    case UnaryOp::sign:
    case UnaryOp::floor:
    case UnaryOp::ceil:
    case UnaryOp::round:
    case UnaryOp::trunc: return nothing_of(dy);
    case UnaryOp::square: return 2.0 * dy * x;
    case UnaryOp::sqrt: return dy / (2.0 * y);
    case UnaryOp::rsqrt: return -0.5 * dy * y * y * y;
    case UnaryOp::reciprocal: return -dy * y * y;
    case UnaryOp::exp: return dy * y;
    case UnaryOp::expm1: return dy * (y + 1.0);
    case UnaryOp::log: return dy / x;
    case UnaryOp::log1p: return dy / (x + 1.0);
    case UnaryOp::log2: return dy / x / ln2;
    case UnaryOp::log10: return dy / x / ln10;
    case UnaryOp::sin: return dy * cos(x);
    case UnaryOp::cos: return -dy * sin(x);
    case UnaryOp::tan: return dy * (square(y) + 1.0);
    case UnaryOp::atan: return dy / (square(x) + 1.0);
    case UnaryOp::asin: return dy / sqrt((1.0 - x) * (x + 1.0));
    case UnaryOp::acos: return -dy / sqrt((1.0 - x) * (x + 1.0));
    case UnaryOp::sinh: return dy * cosh(x);
    case UnaryOp::cosh: return dy * sinh(x);
    case UnaryOp::asinh: return dy / sqrt(square(x) + 1.0);
    case UnaryOp::acosh: return dy / sqrt((x - 1.0) * (x + 1.0));
    case UnaryOp::atanh: return dy / ((1.0 - x) * (x + 1.0));
    case UnaryOp::erf: return dy * (2.0 / std::sqrt(pi)) * exp(-square(x));
    case UnaryOp::tanh: return dy * (1.0 - square(y));
    case UnaryOp::sigmoid: return dy * y * (1.0 - y);
    case UnaryOp::relu: return kept(dy, logical_not(y <= 0.0));
    case UnaryOp::silu: {
      const Tensor s = sigmoid(x);
      return dy * s * (x * (1.0 - s) + 1.0);
    }
    case UnaryOp::gelu: {
      const Tensor density = exp(-0.5 * square(x)) / std::sqrt(2.0 * pi);
      return dy * (0.5 * (erf(x / std::numbers::sqrt2) + 1.0) + x * density);
    }
    case UnaryOp::gelu_tanh: {
      const double twice = 2.0 * std::sqrt(2.0 / pi);
      const Tensor s = sigmoid(twice * (x + 0.044715 * x * square(x)));
      const Tensor slope = twice * (3.0 * 0.044715 * square(x) + 1.0);
      return dy * s * (x * slope * (1.0 - s) + 1.0);
    }
    case UnaryOp::softplus: return dy * sigmoid(x);
    case UnaryOp::mish: {
      const Tensor t = tanh(softplus(x));
      return dy * (t + x * (1.0 - square(t)) * sigmoid(x));
    }
    case UnaryOp::elu: {
      const Tensor is_linear = x > 0.0;
      // Not the exponential of what is large: 0 times infinity.
      return where(is_linear, dy, dy * alpha * exp(masked_fill(x, is_linear, 0.0)));
    }
    case UnaryOp::hardswish:
      return where(x >= 3.0, dy, kept(dy * (x / 3.0 + 0.5), logical_not(x <= -3.0)));
    case UnaryOp::leaky_relu: return where(x > 0.0, dy, alpha * dy);
    case UnaryOp::clamp: {
      const Tensor everywhere = ones({}, {DType::boolean, x.device()});
      constexpr double infinity = std::numeric_limits<double>::infinity();
      return kept(dy, logical_and(alpha == -infinity ? everywhere : x > alpha,
                                  beta == infinity ? everywhere : x < beta));
    }
    case UnaryOp::pow_scalar:
      return alpha == 0.0 ? nothing_of(dy) : dy * alpha * pow(x, alpha - 1.0);
    case UnaryOp::affine: return alpha * dy;
    case UnaryOp::div_scalar: return dy / alpha;
  }
  LOCKSTEP_THROW(Unsupported, traits(op).name, ": its gradient cannot be differentiated");
}

std::pair<Tensor, Tensor> wide_gradients(BinaryOp op, const Tensor& dy, const Tensor& a,
                                         const Tensor& b, const OpConstants& constants) {
  switch (op) {
    case BinaryOp::add:
    case BinaryOp::sub: break;  // see `additive`
    case BinaryOp::mul: return {dy * b, dy * a};
    case BinaryOp::div: return {dy / b, -dy * (a / b / b)};
    case BinaryOp::floor_divide: return {nothing_of(dy), nothing_of(dy)};
    case BinaryOp::remainder: return {dy, -dy * floor_divide(a, b).detach()};
    case BinaryOp::fmod: return {dy, -dy * trunc(a / b).detach()};
    case BinaryOp::atan2: {
      // By a constant of their size, for squares might overflow or underflow.
      const Tensor largest = maximum(abs(a), abs(b)).detach(), is_origin = largest == 0.0;
      const Tensor size = masked_fill(largest, is_origin, 1.0);
      const Tensor u = a / size, v = b / size;
      const Tensor scaled = kept(dy, logical_not(is_origin)) / size /
                            masked_fill(square(u) + square(v), is_origin, 1.0);
      return {scaled * v, -scaled * u};
    }
    case BinaryOp::maximum:
    case BinaryOp::minimum: {
      const Tensor half = kept(dy / 2.0, a == b);
      const Tensor larger = a > b, smaller = a < b;
      const bool is_maximum = op == BinaryOp::maximum;
      const auto share = [&](const Tensor& loses, const Tensor& wins) {
        return where(loses, 0, where(logical_or(wins, logical_not(a == b)), dy, half));
      };
      return is_maximum ? std::pair(share(smaller, larger), share(larger, smaller))
                        : std::pair(share(larger, smaller), share(smaller, larger));
    }
    case BinaryOp::pow: {
      const Tensor is_constant = b == 0.0;
      const Tensor of_base = kept(dy * b * pow(a, b - 1.0), logical_not(is_constant));
      // As the kernel has it: 0 to such a power is constant, though log 0 is infinite.
      const Tensor is_flat = logical_and(a == 0.0, b >= 0.0);
      const Tensor base = masked_fill(a, is_flat, 1.0);
      return {of_base, kept(dy, logical_not(is_flat)) * pow(base, b) * log(base)};
    }
    case BinaryOp::swiglu: {
      const Tensor s = sigmoid(a);
      return {dy * b * s * (a * (1.0 - s) + 1.0), dy * a * s};
    }
    case BinaryOp::glu: {
      const Tensor s = sigmoid(b);
      return {dy * s, dy * a * (s * (1.0 - s))};
    }
    case BinaryOp::prelu: {
      const Tensor is_positive = a > 0.0;
      return {where(is_positive, dy, b * dy), dy * masked_fill(a, is_positive, 0.0)};
    }
    case BinaryOp::mse_loss: {
      const Tensor slope = dy * (a - b) * 2.0;
      return {slope, -slope};
    }
    case BinaryOp::huber_loss: {
      const Tensor slope = dy * clamp(a - b, -constants.alpha, constants.alpha);
      return {slope, -slope};
    }
    case BinaryOp::binary_cross_entropy: {
      const Tensor slope = clamp_min((1.0 - a) * a, 1e-12F);
      return {dy * (a - b) / slope,
              dy * (clamp_min(log1p(-a), -100.0) - clamp_min(log(a), -100.0))};
    }
    case BinaryOp::binary_cross_entropy_with_logits: return {dy * (sigmoid(a) - b), -(dy * a)};
  }
  LOCKSTEP_THROW(Unsupported, traits(op).name, ": its gradient cannot be differentiated");
}

}  // namespace

Tensor recorded_gradient(UnaryOp op, const Tensor& dy, const Tensor& x, const Tensor& y,
                         const OpConstants& constants) {
  // As kernels do: 16 bits are computed in f32 and rounded once.
  const DType wide = statistics_dtype(dy.dtype());
  const auto widened = [&](const Tensor& given) {
    return given.defined() ? given.to(wide) : given;
  };
  return wide_gradient(op, widened(dy), widened(x), widened(y), constants).to(dy.dtype());
}

std::pair<Tensor, Tensor> recorded_gradients(BinaryOp op, const Tensor& dy, const Tensor& a,
                                             const Tensor& b, const OpConstants& constants) {
  const DType wide = statistics_dtype(dy.dtype());
  const auto [da, db] = wide_gradients(op, dy.to(wide), a.to(wide), b.to(wide), constants);
  return {da.to(dy.dtype()), db.to(dy.dtype())};
}

}  // namespace lockstep::autograd
