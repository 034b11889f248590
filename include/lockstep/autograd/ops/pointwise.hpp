#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/tensor/tensor.hpp"

/// @file
/// Elementwise ops. Operands of one op share dtype and device (scalars adapt); shapes broadcast by
/// NumPy's rules. Floating dtypes on every backend; arithmetic and comparison also i64, i32 and u8.
/// Mismatches throw InvalidArgument, dtypes a backend lacks Unsupported.

namespace lockstep {

/// -x.
Tensor neg(const Tensor& x);
/// |x|; gradient 0 at 0.
Tensor abs(const Tensor& x);
/// -1, 0 or 1; 0 for NaN. The gradient is 0, as those of the roundings below.
Tensor sign(const Tensor& x);
/// The largest whole number up to x. Integers stay, here as in the other roundings.
Tensor floor(const Tensor& x);
/// The smallest whole number from x on.
Tensor ceil(const Tensor& x);
/// The nearest whole number; halves go to the even one.
Tensor round(const Tensor& x);
/// The whole number next to x on the side of 0.
Tensor trunc(const Tensor& x);
/// x * x.
Tensor square(const Tensor& x);
/// Square root.
Tensor sqrt(const Tensor& x);
/// 1 / sqrt(x).
Tensor rsqrt(const Tensor& x);
/// 1 / x.
Tensor reciprocal(const Tensor& x);
/// e^x.
Tensor exp(const Tensor& x);
/// e^x - 1, accurate near 0.
Tensor expm1(const Tensor& x);
/// Natural logarithm.
Tensor log(const Tensor& x);
/// Logarithm to the base 2.
Tensor log2(const Tensor& x);
/// Logarithm to the base 10.
Tensor log10(const Tensor& x);
/// log(1 + x), accurate near 0.
Tensor log1p(const Tensor& x);
/// Sine of radians.
Tensor sin(const Tensor& x);
/// Cosine of radians.
Tensor cos(const Tensor& x);
/// Tangent of radians.
Tensor tan(const Tensor& x);
/// The angle in radians, within [-pi/2, pi/2], whose tangent is x.
Tensor atan(const Tensor& x);
/// The angle in radians, within [-pi/2, pi/2], whose sine is x; NaN outside [-1, 1].
Tensor asin(const Tensor& x);
/// The angle in radians, within [0, pi], whose cosine is x; NaN outside [-1, 1].
Tensor acos(const Tensor& x);
/// Hyperbolic sine.
Tensor sinh(const Tensor& x);
/// Hyperbolic cosine.
Tensor cosh(const Tensor& x);
/// The number whose hyperbolic sine is x.
Tensor asinh(const Tensor& x);
/// The number from 0 on whose hyperbolic cosine is x; NaN below 1.
Tensor acosh(const Tensor& x);
/// The number whose hyperbolic tangent is x; NaN outside [-1, 1].
Tensor atanh(const Tensor& x);
/// Error function.
Tensor erf(const Tensor& x);
/// Hyperbolic tangent.
Tensor tanh(const Tensor& x);
/// 1 / (1 + e^-x).
Tensor sigmoid(const Tensor& x);
/// max(x, 0).
Tensor relu(const Tensor& x);
/// x * sigmoid(x).
Tensor silu(const Tensor& x);

/// The two forms of GELU (Hendrycks and Gimpel 2016).
enum class GeluApproximation : unsigned char { none, tanh };
/// x * Phi(x), exactly through erf or by the tanh approximation.
Tensor gelu(const Tensor& x, GeluApproximation approximation = GeluApproximation::none);
/// log(1 + e^x).
Tensor softplus(const Tensor& x);
/// log(1 + e^(beta x)) / beta; x where beta x is above the threshold, as PyTorch's softplus.
/// @throws InvalidArgument for a beta of 0.
Tensor scaled_softplus(const Tensor& x, double beta, double threshold = 20.0);
/// log(sigmoid(x)), without overflow.
Tensor logsigmoid(const Tensor& x);
/// min(max(x, low), high); the gradient passes in between.
Tensor hardtanh(const Tensor& x, double low = -1.0, double high = 1.0);
/// min(max(x, 0), 6).
Tensor relu6(const Tensor& x);
/// x * tanh(softplus(x)).
Tensor mish(const Tensor& x);
/// x above 0, else alpha * (e^x - 1).
Tensor elu(const Tensor& x, double alpha = 1.0);
/// 1.0507 * elu(x, 1.67326): layers of it keep mean 0 and variance 1 (Klambauer et al. 2017).
Tensor selu(const Tensor& x);
/// x above 0, else alpha * (e^(x / alpha) - 1) (Barron 2017).
/// @throws InvalidArgument for an alpha of 0.
Tensor celu(const Tensor& x, double alpha = 1.0);
/// The first half along a dimension times the sigmoid of the second (Dauphin et al. 2017).
/// @throws InvalidArgument for an odd extent.
Tensor glu(const Tensor& x, std::int64_t dim = -1);
/// x * sigmoid(gate); shapes broadcast.
Tensor glu(const Tensor& x, const Tensor& gate);
/// x * clamp(x + 3, 0, 6) / 6.
Tensor hardswish(const Tensor& x);
/// x above 0, else slope * x.
Tensor leaky_relu(const Tensor& x, double slope = 0.01);
/// x above 0, else slope * x, with learned slopes (He et al. 2015).
/// @param slopes one element, or one for each channel of x [N, C, ...].
Tensor prelu(const Tensor& x, const Tensor& slopes);
/// x limited to [low, high]; gradient 0 outside and at the bounds. Where low is above high, all
/// elements become high. Bounds count by value: one that an integer dtype cannot hold limits
/// nothing. @throws InvalidArgument if all elements would have to become it, and for NaN.
Tensor clamp(const Tensor& x, Scalar low, Scalar high);
/// x, or `low` where that is not smaller; gradient 0 there.
Tensor clamp_min(const Tensor& x, Scalar low);
/// x, or `high` where that is not larger; gradient 0 there.
Tensor clamp_max(const Tensor& x, Scalar high);
/// x to a constant power.
Tensor pow(const Tensor& x, double exponent);
/// alpha * x + beta.
Tensor affine(const Tensor& x, Scalar alpha, Scalar beta);

/// a + alpha * b.
Tensor add(const Tensor& a, const Tensor& b, double alpha = 1.0);
/// x + value. Integer dtypes count modulo their range, with numbers as with tensors, here as in
/// `sub`, `mul` and `affine`: i32 + 3e9 wraps around, as in PyTorch.
/// @throws InvalidArgument there for fractions, and for numbers beyond 64 bits.
Tensor add(const Tensor& x, Scalar value);
/// a - alpha * b.
Tensor sub(const Tensor& a, const Tensor& b, double alpha = 1.0);
/// x - value.
Tensor sub(const Tensor& x, Scalar value);
/// value - x.
Tensor sub(Scalar value, const Tensor& x);
/// a * b.
Tensor mul(const Tensor& a, const Tensor& b);
/// x * value.
Tensor mul(const Tensor& x, Scalar value);
/// a / b. Integers and bool become f32 first, here and below.
Tensor div(const Tensor& a, const Tensor& b);
/// x / value.
Tensor div(const Tensor& x, Scalar value);
/// value / x.
Tensor div(Scalar value, const Tensor& x);

/// How a quotient becomes a whole number: cut off towards zero, or down as floor_divide.
enum class RoundingMode : unsigned char { trunc, floor };
/// a / b as a whole number, exact and of the same dtype for integers; there a division by 0 gives
/// 0. Of floats, trunc cuts the quotient as rounded to their dtype. The gradient is 0.
Tensor div(const Tensor& a, const Tensor& b, RoundingMode rounding);
/// a / b rounded down, as `//` of Python and PyTorch: a quotient of floats that rounds up to a
/// whole number is not taken for it (1.0 by 0.1 gives 9, for the f64 next to 0.1 lies above it).
/// Integers give 0 for division by 0. The gradient is 0.
Tensor floor_divide(const Tensor& a, const Tensor& b);
/// a - b * floor_divide(a, b), without rounding in between, as `%` of Python and PyTorch: it has
/// the sign of b. Integers give 0 for division by 0. The gradient takes the quotient as constant.
Tensor remainder(const Tensor& a, const Tensor& b);
/// The same by a number. @throws InvalidArgument for one that x's integer dtype cannot hold.
Tensor remainder(const Tensor& x, Scalar value);
/// What division towards 0 leaves, with the sign of a, as fmod of C. Integers give 0 for division
/// by 0. The gradient takes the quotient for constant.
Tensor fmod(const Tensor& a, const Tensor& b);
/// The same by a number.
Tensor fmod(const Tensor& x, Scalar value);
/// The angle in radians of the point (x, y), within [-pi, pi]. At (0, 0) its gradient is 0.
Tensor atan2(const Tensor& y, const Tensor& x);
/// The larger; at ties each gets half of the gradient, and beside NaN all of it.
Tensor maximum(const Tensor& a, const Tensor& b);
/// The smaller; at ties each gets half of the gradient, and beside NaN all of it.
Tensor minimum(const Tensor& a, const Tensor& b);
/// a to the power b.
Tensor pow(const Tensor& a, const Tensor& b);
/// A number to the power of each element.
Tensor pow(Scalar base, const Tensor& exponent);
/// x + value * a * b. 16 bits are rounded once. Floating; shapes broadcast.
Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, double value = 1.0);
/// x + value * a / b, likewise.
Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, double value = 1.0);
/// a + weight * (b - a), counted from the end that is nearer: exactly b for a weight of 1.
/// Floating; shapes broadcast.
Tensor lerp(const Tensor& a, const Tensor& b, const Tensor& weight);
Tensor lerp(const Tensor& a, const Tensor& b, double weight);
/// silu(gate) * up, rounded once; shapes broadcast: the gate of SwiGLU (Shazeer 2020), a
/// feed-forward part `linear(swiglu(linear(x, gate), linear(x, up)), down)`.
Tensor swiglu(const Tensor& gate, const Tensor& up);
/// x with other numbers in the place of those that are none: `nan` for NaN, and for the infinities
/// `positive` and `negative`, by default the largest and the least number of the dtype. The
/// gradient is 0 there. Integers stay.
Tensor nan_to_num(const Tensor& x, double nan = 0.0, std::optional<double> positive = {},
                  std::optional<double> negative = {});
/// condition (bool) ? a : b, broadcast.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
/// The same with a number, of the tensor's dtype. @throws InvalidArgument if that cannot hold it.
Tensor where(const Tensor& condition, const Tensor& a, Scalar b);
Tensor where(const Tensor& condition, Scalar a, const Tensor& b);

/// Elementwise a + b, recorded.
inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
/// Elementwise a - b, recorded.
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
/// Elementwise a * b, recorded.
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
/// Elementwise a / b, recorded.
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
/// Elementwise x + value, recorded.
inline Tensor operator+(const Tensor& x, Scalar value) { return add(x, value); }
/// Elementwise value + x, recorded.
inline Tensor operator+(Scalar value, const Tensor& x) { return add(x, value); }
/// Elementwise x - value, recorded.
inline Tensor operator-(const Tensor& x, Scalar value) { return sub(x, value); }
/// Elementwise value - x, recorded.
inline Tensor operator-(Scalar value, const Tensor& x) { return sub(value, x); }
/// Elementwise x * value, recorded.
inline Tensor operator*(const Tensor& x, Scalar value) { return mul(x, value); }
/// Elementwise value * x, recorded.
inline Tensor operator*(Scalar value, const Tensor& x) { return mul(x, value); }
/// Elementwise x / value, recorded.
inline Tensor operator/(const Tensor& x, Scalar value) { return div(x, value); }
/// Elementwise value / x, recorded.
inline Tensor operator/(Scalar value, const Tensor& x) { return div(value, x); }
/// Elementwise `remainder`, recorded.
inline Tensor operator%(const Tensor& a, const Tensor& b) { return remainder(a, b); }
/// Elementwise `remainder` by a number, recorded.
inline Tensor operator%(const Tensor& x, Scalar value) { return remainder(x, value); }
/// Elementwise -x, recorded.
inline Tensor operator-(const Tensor& x) { return neg(x); }

}  // namespace lockstep
